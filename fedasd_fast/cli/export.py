"""fedasd export: the metrics of a run as CSV."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ..common.table import Table
from ..report.run_list import ListedRun, list_run


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Writes the metrics of a run as CSV: a line for each round, a column for each metric."
    parser.add_argument("run", metavar="RUN", help="the run directory")
    what = "the file to write (default: standard output)"
    parser.add_argument("--csv", nargs="?", const="-", required=True, metavar="FILE", help=what)
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    found = list_run(Path(arguments.run))
    for line in found.bad_lines:
        print(f"fedasd: {line}", file=sys.stderr)
    table = metrics_table(found)
    if arguments.csv == "-":
        print(table.csv(), end="")
    else:
        print(f"  metrics   {table.save_csv(arguments.csv)}")
    return 0


def metrics_table(run: ListedRun) -> Table:
    """Numbers as they are in metrics.jsonl, lists and mappings as JSON; empty where a round has no such metric."""
    columns = list(dict.fromkeys(["round", *(key for row in run.rows for key in row)]))
    return Table(columns, [[_cell(row.get(key)) for key in columns] for row in run.rows])


def _cell(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)

"""fedasd list: the runs in a folder, their state, round, accuracy, and the settings in which they differ."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml

from ..common.schema import ConfigError
from ..report.run_list import ListedRun, list_run, run_directories, runs_table


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Lists the runs in a folder and below it: finished, interrupted or running, the last round, the accuracy (%) "
        "at the last evaluation, and the settings in which the runs differ."
    )
    parser.add_argument("folder", nargs="?", default="runs", metavar="DIR", help="the folder (default: runs)")
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    top = Path(arguments.folder)
    if not top.is_dir():
        raise ConfigError(f"there is no folder {top}; name the one that contains your runs: `fedasd list DIR`")
    runs: list[ListedRun] = []
    folders = list(run_directories(top))
    for folder in folders:
        try:
            runs.append(list_run(folder))
        except (ConfigError, OSError, yaml.YAMLError) as error:
            print(f"fedasd: not shown: {folder}: {' '.join(str(error).split())}", file=sys.stderr)
    if not folders:
        raise ConfigError(f"no run in {top} or below it (no config.yaml)")
    for line in (line for one in runs for line in one.bad_lines):
        print(f"fedasd: {line}", file=sys.stderr)
    runs_table(runs, top).show()
    return 0

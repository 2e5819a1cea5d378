"""fedasd report: writes a report page about runs."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from ..common.formatting import plural
from ..common.schema import ConfigError
from ..report.page import write_report
from .options import add_data_dir


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Writes one HTML file about runs, with its figures embedded; they are also saved as files."
    what = "run directories, or folders that contain some (of compare, sweep, ...)"
    parser.add_argument("folders", nargs="+", metavar="DIR", help=what)
    default = "default: DIR/report.html for one DIR, report.html for several"
    parser.add_argument("--out", metavar="FILE", help=f"the page ({default})")
    parser.add_argument("--title", metavar="TEXT", help="its heading (default: the names of the experiments)")
    watch = "write the page again every SECONDS (default: 30) until all runs are finished; an open page reloads itself"
    parser.add_argument("--watch", type=int, nargs="?", const=30, metavar="SECONDS", help=watch)
    add_data_dir(parser, default="that of the runs")
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    folders = arguments.folders
    out = Path(arguments.out or (Path(folders[0]) / "report.html" if len(folders) == 1 else "report.html"))
    if out.is_dir():
        out = out / "report.html"
    if arguments.watch is not None and arguments.watch < 1:
        raise ConfigError(f"--watch {arguments.watch}; expected at least 1 second")
    options = {"title": arguments.title, "data_dir": arguments.data_dir, "refresh": arguments.watch}
    page = write_report(folders, out, **options)
    if arguments.watch is not None:
        print(
            f"  page      {page.path}, written again every {arguments.watch} s until all runs are finished", flush=True
        )
    try:
        while arguments.watch is not None and not all(run.finished for run in page.runs):
            time.sleep(arguments.watch)
            page = write_report(folders, out, **options)
    except KeyboardInterrupt:  # the usual end of watching; an open page need not load itself any more
        page = write_report(folders, out, **{**options, "refresh": None})
    for problem in page.unreadable:
        print(f"fedasd: not shown: {problem}", file=sys.stderr)
    for line in (*page.repeated, *page.bad_lines):
        print(f"fedasd: {line}", file=sys.stderr)
    print(f"  page      {page.path} ({plural(len(page.runs), 'run')})")
    print(f"  figures   {page.figures} ({len(page.names)}, each as .png and .svg)")
    return 0

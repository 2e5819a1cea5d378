"""fedasd report: runs as a page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any


def add(subparsers: Any) -> None:
    text = "Writes one HTML file about runs, with their figures inside; the figures are also left beside it."
    parser = subparsers.add_parser("report", help="make a page about runs", description=text)
    what = "folders of runs, or folders that hold some (from compare, sweep, ...)"
    parser.add_argument("folders", nargs="+", metavar="DIR", help=what)
    parser.add_argument("--out", metavar="FILE", help="the page (default: DIR/report.html, of several: report.html)")
    parser.add_argument("--title", metavar="TEXT", help="its heading (default: what was run)")
    parser.add_argument("--data-dir", metavar="DIR", help="where datasets are (default: as the runs had it)")
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    from ..report import page

    folders = arguments.folders
    out = Path(arguments.out or (Path(folders[0]) / "report.html" if len(folders) == 1 else "report.html"))
    if out.is_dir():
        out = out / "report.html"
    written = page.write(folders, out, title=arguments.title, data_dir=arguments.data_dir)
    for problem in written.broken:
        print(f"fedasd: not shown: {problem}", file=sys.stderr)
    print(f"  page      {written.path} ({len(written.runs)} run{'s' * (len(written.runs) != 1)})")
    print(f"  figures   {written.figures} ({len(written.names)}, each as .png and .svg)")
    return 0

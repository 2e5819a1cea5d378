"""fedasd resume: an interrupted run goes on, bit for bit."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..config import parse_overrides
from .execution import finish, go_on
from .settings import add_running


def add(subparsers: Any) -> None:
    text = "Continues a run from its last checkpoint, with the result it would have had without the interruption."
    parser = subparsers.add_parser("resume", help="continue an interrupted run", description=text)
    parser.add_argument("folder", metavar="DIR", help="the folder of the run")
    what = "settings that no earlier round depends on: rounds=200, workers=4, data_dir=DIR"
    parser.add_argument("settings", nargs="*", metavar="key=value", help=what)
    add_running(parser)
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    from ..simulation import resume
    from ..simulation.distributed.process_group import is_main_process

    folder, changes = Path(arguments.folder), parse_overrides(arguments.settings)
    if is_main_process():
        finish(go_on(folder, arguments, changes))
    else:
        resume(folder, changes)
    return 0

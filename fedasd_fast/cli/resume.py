"""fedasd resume: continues an interrupted run, bit for bit."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..config import parse_overrides
from ..simulation import resume
from ..simulation.distributed.process_group import is_main_process
from .execution import resume_run
from .outputs import write_outputs
from .settings import add_run_options


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Continues a run from its last checkpoint, with the result it would have had without the interruption."
    )
    parser.add_argument("folder", metavar="DIR", help="the run directory")
    what = "settings that do not affect earlier rounds: rounds=200, workers=4, data_dir=DIR"
    parser.add_argument("settings", nargs="*", metavar="key=value", help=what)
    add_run_options(parser)
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    folder, changes = Path(arguments.folder), parse_overrides(arguments.settings)
    if is_main_process():
        write_outputs(resume_run(folder, arguments, changes, trust_code=arguments.trust_code))
    else:
        resume(folder, changes, trust_code=arguments.trust_code)
    return 0

"""fedasd resume: continues an interrupted run, bit for bit."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..common import dotted
from ..config import Config, parse_overrides
from ..simulation import resume
from ..simulation.distributed.process_group import is_main_process
from .execution import resume_run, trusted_config
from .options import add_run_options
from .outputs import write_outputs


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
        config = trusted_config(folder, arguments, changes)
        if config is not None and not arguments.quiet:
            print_changes(config, changes)
        write_outputs(resume_run(folder, arguments, changes, trust_code=arguments.trust_code))
    else:
        resume(folder, changes, trust_code=arguments.trust_code)
    return 0


def print_changes(config: Config, changes: Mapping[str, Any]) -> None:
    """`rounds: 100 -> 200`, one line for each setting that differs from the run's own."""
    before, after = config.to_dict(), config.replace(**changes).to_dict()
    for key in dotted.differences(before, after):
        print(f"{key}: {dotted.lookup(before, key)} -> {dotted.lookup(after, key)}", file=sys.stderr, flush=True)

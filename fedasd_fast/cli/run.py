"""fedasd run: one experiment in one run directory."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from ..common.schema import ConfigError
from ..simulation import simulate
from ..simulation.distributed.process_group import is_main_process, started_by_torchrun
from .dry_run import print_resource_estimate
from .execution import start_run
from .options import add_run_options, add_settings, configuration, default_directory, unused_directory
from .outputs import write_outputs


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Runs an experiment and writes configuration, metrics, checkpoints and a report."
    add_settings(parser)
    parser.add_argument("--out", metavar="DIR", help="the run directory (default: runs/PRESET-METHOD-seedN)")
    parser.add_argument("--dry-run", action="store_true", help="print steps, memory, disk and time; run nothing")
    add_run_options(parser)
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    config = configuration(arguments)
    distributed = config.executor in ("auto", "torchrun") and started_by_torchrun()
    given = arguments.out or (None if is_a_recorded_run(arguments.preset) else config.out)
    folder = Path(given or (default_directory if distributed else unused_directory)(config))
    if not distributed and (folder / "config.yaml").exists():
        raise ConfigError(
            f"{folder} holds a run already; continue it with `fedasd resume {shlex.quote(str(folder))}`, or choose "
            "another --out"
        )
    if arguments.dry_run:
        print_resource_estimate(config.replace(out=str(folder)), arguments)
    elif distributed and not is_main_process():
        simulate(config.replace(out=str(folder)))  # the leading rank writes and prints
    else:
        write_outputs(start_run(config, folder, arguments))
    return 0


def is_a_recorded_run(preset: str) -> bool:
    """RUN/config.yaml: its `out` is the directory of that run, which stays as it is; a repetition gets a new one."""
    file = Path(preset)
    return file.name == "config.yaml" and (file.parent / "versions.jsonl").is_file()

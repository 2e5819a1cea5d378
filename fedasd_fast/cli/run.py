"""fedasd run: one experiment into one folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..common.formatting import pretty
from ..common.schema import ConfigError
from ..config import Config
from ..report.accuracy_plot import setting_text
from .execution import finish, follow, start
from .settings import add_running, add_settings, configuration, free_folder, usual_folder


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("run", help="run an experiment", description="Runs an experiment into a folder.")
    add_settings(parser)
    parser.add_argument("--out", metavar="DIR", help="the folder (default: runs/PRESET-METHOD-seedN)")
    parser.add_argument("--dry-run", action="store_true", help="print steps, memory and disk, and run nothing")
    add_running(parser)
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    from ..simulation.distributed.process_group import is_main_process, started_by_torchrun

    config = configuration(arguments)
    spread = config.executor in ("auto", "torchrun") and started_by_torchrun()
    folder = Path(arguments.out or config.out or (usual_folder if spread else free_folder)(config))
    if not spread and (folder / "config.yaml").exists():
        raise ConfigError(
            f"{folder} holds a run already; continue it with `fedasd resume {folder}`, or choose another --out"
        )
    if arguments.dry_run:
        show_plan(config.replace(out=str(folder)))
        return 0
    if spread and not is_main_process():
        follow(config.replace(out=str(folder)))
    else:
        finish(start(config, folder, arguments))
    return 0


def show_plan(config: Config) -> None:
    """What the run will take; an error if it cannot fit."""
    from ..simulation.context import build_context
    from ..simulation.resource_estimate import check_resources

    estimate = check_resources(build_context(config))
    width = max(len(label) for label, _ in estimate.rows())
    print(f"{config.name}: {pretty(config.method)}, {setting_text([config])}")
    for label, value in estimate.rows():
        print(f"  {label:{width}}  {value}")
    print(f"  {'folder':{width}}  {config.out}")

"""fedasd run: one experiment in one run directory."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from ..common.formatting import method_label
from ..common.schema import ConfigError
from ..config import Config
from ..report.accuracy_plot import common_settings
from ..simulation import simulate
from ..simulation.context import build_context
from ..simulation.distributed.process_group import is_main_process, started_by_torchrun
from ..simulation.precision_speed import half_precision_times
from ..simulation.resource_estimate import check_resources
from ..simulation.system import half_precision
from .execution import start_run
from .options import add_run_options, add_settings, configuration, default_directory, unused_directory
from .outputs import write_outputs


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Runs an experiment and writes configuration, metrics, checkpoints and a report."
    add_settings(parser)
    parser.add_argument("--out", metavar="DIR", help="the run directory (default: runs/PRESET-METHOD-seedN)")
    parser.add_argument("--dry-run", action="store_true", help="print steps, memory and disk, and run nothing")
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
        print_resource_estimate(config.replace(out=str(folder)))
    elif distributed and not is_main_process():
        simulate(config.replace(out=str(folder)))  # the leading rank writes and prints
    else:
        write_outputs(start_run(config, folder, arguments))
    return 0


def is_a_recorded_run(preset: str) -> bool:
    """RUN/config.yaml: its `out` is the directory of that run, which stays as it is; a repetition gets a new one."""
    file = Path(preset)
    return file.name == "config.yaml" and (file.parent / "versions.jsonl").is_file()


def print_resource_estimate(config: Config) -> None:
    """Steps, memory and disk of the run, and what half precision gains here; an error if it cannot run."""
    context = build_context(config)
    half_precision.check_precision(config.precision, context.initial.device)
    rows = check_resources(context).rows()
    if context.initial.device.type == "cpu" and config.dtype == "float32":
        times = half_precision_times(context)
        without = (
            "" if half_precision.has_instructions(times.precision) else f" (warning: this CPU has no {times.precision})"
        )
        rows.append(("a local step", f"{times}{without}"))
    width = max(len(label) for label, _ in rows)
    print(f"{config.name}: {method_label(config.method)}, {common_settings([config])}")
    for label, value in rows:
        print(f"  {label:{width}}  {value}")
    print(f"  {'folder':{width}}  {config.out}")

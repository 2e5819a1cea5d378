"""--dry-run: what one run or several would take, on this machine; nothing is written."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..common.durations import format_duration
from ..common.formatting import method_label, plural
from ..config import Config
from ..data.directory import DatasetNotFound
from ..report.accuracy_plot import common_settings
from ..reproduce.run_timing import timing_key
from ..simulation.context import build_context
from ..simulation.distributed.process_group import started_by_torchrun
from ..simulation.precision_speed import half_precision_times
from ..simulation.resource_estimate import check_resources
from ..simulation.storage.recorded_run import read_run
from ..simulation.system import half_precision
from ..simulation.time_estimate import TimeEstimate, estimate_time
from .execution import check_same_settings, say

_UNTRAINED = "unknown: no client of the first rounds could be trained"
_LABEL_WIDTH = len("memory: largest client")
_TORCHRUN = "not measured under torchrun"


def print_resource_estimate(config: Config, arguments: argparse.Namespace) -> None:
    """Steps, memory, disk and time of the run, and what half precision gains here; an error if it cannot run."""
    say("loading data", arguments)
    context = build_context(config)
    half_precision.check_precision(config.precision, context.initial.device)
    rows = check_resources(context).rows()
    print(f"{config.name}: {method_label(config.method)}, {common_settings([config])}")
    _print_rows([*rows, ("folder", str(config.out))])
    if started_by_torchrun():
        _print_rows([("time", _TORCHRUN)])
        return
    say("measuring", arguments)
    if context.initial.device.type == "cpu" and config.dtype == "float32":
        times = half_precision_times(context)
        supported = half_precision.has_instructions(times.precision)
        _print_rows([("a local step", f"{times}" + f" (warning: this CPU has no {times.precision})" * (not supported))])
    found = estimate_time(context)
    _print_rows(found.rows(config) if found else [("time", _UNTRAINED)])


def _print_rows(rows: Sequence[tuple[str, str]]) -> None:
    for label, value in rows:
        print(f"  {label:{_LABEL_WIDTH}}  {value}", flush=True)


def list_runs(planned: Sequence[tuple[Config, Path]], arguments: argparse.Namespace) -> None:
    """Every run with its rounds, then the time that is left; an existing run with other settings is an error."""
    done = []
    for config, folder in planned:
        begun = 0
        if (folder / "config.yaml").exists():
            found = read_run(folder)
            check_same_settings(config, found)
            begun = found.rounds
        done.append(begun)
        print(f"{folder}  {config.rounds} rounds" + f" ({begun} done)" * bool(begun), flush=True)
    total = f"{plural(len(planned), 'run')}, {plural(sum(config.rounds for config, _ in planned), 'round')}"
    print(f"{total}, {_time_left([config for config, _ in planned], done, arguments)}")


def _time_left(configs: Sequence[Config], done: Sequence[int], arguments: argparse.Namespace) -> str:
    if started_by_torchrun():
        return f"time {_TORCHRUN}"
    measured: dict[tuple[Any, ...], TimeEstimate | None] = {}
    seconds = 0.0
    for config, begun in zip(configs, done, strict=True):
        if begun >= config.rounds:
            continue
        key = timing_key(config)
        if key not in measured:
            say(f"{config.name} {config.method}: loading data, measuring", arguments)
            try:
                measured[key] = estimate_time(build_context(config))
            except DatasetNotFound as error:
                return f"time unknown: {error}"
        found = measured[key]
        if found is None:
            return f"time {_UNTRAINED}"
        seconds += found.timing.seconds(config, config.rounds, begun)
    return f"about {format_duration(seconds)} on this machine" if seconds else "all of them finished"

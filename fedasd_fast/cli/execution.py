"""Starts, resumes and completes runs in their run directories, with progress."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import presets
from ..callbacks import Callback, Progress, TensorBoard, WandB
from ..common import dotted
from ..common.formatting import plural
from ..common.schema import ConfigError
from ..config import Config
from ..simulation import resume, simulate
from ..simulation.storage.recorded_run import RecordedRun, read_run


def announce(number: int, total: int, what: str, seed: int, arguments: argparse.Namespace) -> None:
    """`[2/4] FedAvg+ASD, seed 1`: which run of how many."""
    if not arguments.quiet:
        print(f"[{number}/{total}] {what}, seed {seed}", file=sys.stderr, flush=True)


def list_runs(planned: Sequence[tuple[Config, Path]]) -> None:
    """What --dry-run shows: every run with its rounds; an existing run with other settings is an error."""
    for config, folder in planned:
        done = ""
        if (folder / "config.yaml").exists():
            found = read_run(folder)
            check_same_settings(config, found)
            done = f" ({found.rounds} done)"
        print(f"{folder}  {config.rounds} rounds{done}")
    print(f"{plural(len(planned), 'run')}, {plural(sum(config.rounds for config, _ in planned), 'round')}")


def start_run(config: Config, folder: Path, arguments: argparse.Namespace) -> RecordedRun:
    config = config.replace(out=str(folder))
    if not arguments.quiet:
        measuring = ", measuring executors" if config.executor == "auto" else ""
        print(f"fedasd: {config.name} {config.method}: loading data{measuring}", file=sys.stderr, flush=True)
    return _with_callbacks(folder, arguments, lambda callbacks: simulate(config, callbacks=callbacks))


def resume_run(folder: Path, arguments: argparse.Namespace, changes: Mapping[str, Any] | None = None) -> RecordedRun:
    return _with_callbacks(folder, arguments, lambda callbacks: resume(folder, changes, callbacks=callbacks))


def complete_run(config: Config, folder: Path, arguments: argparse.Namespace) -> RecordedRun:
    """The run in this directory: as it is if finished, resumed if interrupted, started if there is none.

    A run with fewer rounds than are wanted now is continued; one with more is kept as it is.
    """
    if not (folder / "config.yaml").exists():
        return start_run(config, folder, arguments)
    found = read_run(folder)
    check_same_settings(config, found)
    longer = found.rounds > config.rounds
    killed_at_the_end = (folder / "checkpoint").exists() and not (folder / "models.pt").exists()
    if longer or (found.rounds == config.rounds and not killed_at_the_end):
        print(f"{folder}: finished already" + (f", with {found.rounds} rounds" if longer else ""))
        return found
    return resume_run(folder, arguments, {"rounds": config.rounds} if found.config.rounds != config.rounds else None)


def check_same_settings(config: Config, found: RecordedRun) -> None:
    """Refuses an existing run that differs from the wanted one in more than its number of rounds."""
    wanted, there = config.to_dict(), found.config.to_dict()
    changed = sorted({*presets.differences(wanted, there), *(["seed"] if config.seed != found.config.seed else [])})
    listed = [
        f"{key} = {dotted.lookup(there, key)}, not {dotted.lookup(wanted, key)}" for key in changed if key != "rounds"
    ]
    if listed:
        raise ConfigError(
            f"{found.out} holds a run with other settings ({'; '.join(listed)}); choose another --out, or remove that "
            "directory"
        )


def _with_callbacks(folder: Path, arguments: argparse.Namespace, run: Callable[[list[Callback]], Any]) -> RecordedRun:
    progress = Progress()
    callbacks: list[Callback] = [] if arguments.quiet else [progress]
    if arguments.tensorboard:
        callbacks.append(TensorBoard())
    if arguments.wandb:
        callbacks.append(WandB())
    try:
        run(callbacks)
    finally:
        progress.close()
    return read_run(folder)

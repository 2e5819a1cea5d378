"""Starts, resumes and completes runs in their run directories, with progress; under torchrun, with all ranks."""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import presets
from ..callbacks import Callback, MLflow, Progress, TensorBoard, WandB
from ..common import dotted
from ..common.code_trust import require_trust
from ..common.schema import ConfigError
from ..config import Config
from ..simulation import SimulationError, resume, simulate
from ..simulation.distributed.process_group import is_main_process, process_group, started_by_torchrun
from ..simulation.storage.recorded_run import RecordedRun, read_run


@dataclass(frozen=True)
class _RankTask:
    """What all ranks do next: a run from its beginning, or one to be resumed."""

    config: Config | None = None
    folder: Path | None = None
    changes: Mapping[str, Any] | None = None

    def run(self) -> None:
        if self.config is not None:
            simulate(self.config)
        elif self.folder is not None:
            resume(self.folder, self.changes, trust_code=True)


def across_ranks(command: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """A command of several runs under torchrun: rank 0 decides and prints, the others take part in its runs."""

    @functools.wraps(command)
    def run(arguments: argparse.Namespace) -> int:
        if not started_by_torchrun():
            return command(arguments)
        if is_main_process():
            try:
                return command(arguments)
            finally:
                _broadcast(None)
        while (task := _broadcast(None)) is not None:
            with contextlib.suppress(SimulationError):  # of all ranks, told by the first
                task.run()
        return 0

    return run


def _broadcast(task: _RankTask | None) -> _RankTask | None:
    """Rank 0's task, in all ranks; None: there is none left."""
    with process_group("torchrun") as group:
        return group.from_leader(lambda: task)


def announce(number: int, total: int, what: str, seed: int, arguments: argparse.Namespace) -> None:
    """`[2/4] FedAvg+ASD, seed 1`: which run of how many."""
    if not arguments.quiet:
        print(f"[{number}/{total}] {what}, seed {seed}", file=sys.stderr, flush=True)


def say(text: str, arguments: argparse.Namespace) -> None:
    """What begins now and may take a while, said before it does."""
    if not arguments.quiet:
        print(f"fedasd: {text}", file=sys.stderr, flush=True)


def trusted_config(
    folder: Path, arguments: argparse.Namespace, changes: Mapping[str, Any] | None = None
) -> Config | None:
    """Of a run directory; refuses code that it names before a word is said.  None: what is wrong with it is told by
    whoever loads the run."""
    try:
        config = read_run(folder).config
    except (ConfigError, OSError, ValueError):
        return None
    require_trust(folder, config.named_code(changes), trusted=arguments.trust_code)
    return config


def start_run(config: Config, folder: Path, arguments: argparse.Namespace) -> RecordedRun:
    config = config.replace(out=str(folder))
    measuring = ", measuring executors" if config.executor == "auto" else ""
    say(f"{config.name} {config.method}: loading data{measuring}", arguments)
    return _with_callbacks(folder, arguments, lambda callbacks: simulate(config, callbacks=callbacks))


def resume_run(
    folder: Path, arguments: argparse.Namespace, changes: Mapping[str, Any] | None = None, *, trust_code: bool
) -> RecordedRun:
    def call(callbacks: list[Callback]) -> None:
        resume(folder, changes, callbacks=callbacks, trust_code=trust_code)

    say(f"{folder}: loading data and the last checkpoint", arguments)
    return _with_callbacks(folder, arguments, call)


def complete_run(config: Config, folder: Path, arguments: argparse.Namespace) -> RecordedRun:
    """The run in this directory: as it is if finished, resumed if interrupted, started if there is none.

    A run with fewer rounds than are wanted now is continued; one with more is kept as it is.
    """
    if not (folder / "config.yaml").exists():
        _tell_ranks(_RankTask(config=config.replace(out=str(folder))))
        return start_run(config, folder, arguments)
    found = read_run(folder)
    check_same_settings(config, found)
    longer = found.rounds > config.rounds
    killed_at_the_end = (folder / "checkpoint").exists() and not (folder / "models.pt").exists()
    stopped = found.config.stop_at_target and found.finished
    if longer or ((stopped or found.rounds == config.rounds) and not killed_at_the_end):
        print(f"{folder}: finished already" + (f", with {found.rounds} rounds" if longer else ""))
        return found
    changes = {"rounds": config.rounds} if found.config.rounds != config.rounds else None
    # The settings are the same, so what the run directory names is what the command asks for: its code is trusted.
    _tell_ranks(_RankTask(folder=folder, changes=changes))
    return resume_run(folder, arguments, changes, trust_code=True)


def _tell_ranks(task: _RankTask) -> None:
    if started_by_torchrun():
        _broadcast(task)


def check_same_settings(config: Config, found: RecordedRun) -> None:
    """Refuses an existing run that differs from the wanted one in more than its number of rounds."""
    if differs := other_settings(config, found):
        raise ConfigError(
            f"{found.out} holds a run with other settings ({differs}); choose another --out, or remove that directory"
        )


def other_settings(config: Config, found: RecordedRun) -> str:
    """`batch_size = 10, not 5`: what the results of a run depend on and is not as wanted; the rounds do not count."""
    wanted, there = config.to_dict(), found.config.to_dict()
    wanted["clients"] = wanted["clients"] or there["clients"]  # 0: as many as the data have, as it has found out
    changed = sorted({*presets.differences(wanted, there), *(["seed"] if config.seed != found.config.seed else [])})
    return "; ".join(
        f"{key} = {dotted.lookup(there, key)}, not {dotted.lookup(wanted, key)}" for key in changed if key != "rounds"
    )


def _with_callbacks(folder: Path, arguments: argparse.Namespace, run: Callable[[list[Callback]], Any]) -> RecordedRun:
    progress = Progress()
    callbacks: list[Callback] = [] if arguments.quiet else [progress]
    if arguments.tensorboard:
        callbacks.append(TensorBoard())
    if arguments.wandb or arguments.wandb_project or arguments.wandb_entity:
        callbacks.append(WandB(arguments.wandb_project, arguments.wandb_entity))
    if arguments.mlflow or arguments.mlflow_experiment or arguments.mlflow_uri:
        callbacks.append(MLflow(arguments.mlflow_experiment, arguments.mlflow_uri))
    try:
        run(callbacks)
    finally:
        progress.close()
    return read_run(folder)

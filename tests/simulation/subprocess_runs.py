"""Runs in processes of their own, that can be killed, or kill themselves where it hurts most."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from fedasd_fast.callbacks import Callback
from fedasd_fast.config import Config
from fedasd_fast.simulation import resume, simulate
from fedasd_fast.simulation.storage import checkpoint
from fedasd_fast.simulation.storage.client_store import ClientStore
from fedasd_fast.simulation.storage.run_directory import RunDirectory

# The server imports torch once, and never computes: what is forked from it starts quickly and has no thread to miss.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__, "torch._dynamo"])  # which torch else imports in the middle of a run


def start(function: Callable[..., Any], *arguments: Any) -> tuple[BaseProcess, Connection]:
    """A process, and the pipe on which it says "begun", then what the function returned or the error it raised."""
    ours, theirs = _context.Pipe(duplex=False)
    process = _context.Process(target=_report, args=(theirs, function, arguments))
    process.start()
    theirs.close()
    assert ours.recv() == "begun"
    return process, ours


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returned, or the error it raised, or the signal that its process died of."""
    process, pipe = start(function, *arguments)
    try:
        answer = pipe.recv()
    except EOFError:
        answer = None
    process.join()
    pipe.close()
    assert process.exitcode is not None
    return signal.Signals(-process.exitcode) if process.exitcode < 0 else answer


def _report(pipe: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    pipe.send("begun")
    try:
        answer = function(*arguments)
    except Exception as error:
        answer = error
    pipe.send(answer)


def go_on(config: Config, fault: tuple[str, int] | None = None, callbacks: tuple[Callback, ...] = ()) -> str:
    """Starts or resumes the run in config.out; with a fault, the process dies there."""
    if fault:
        FAULTS[fault[0]](fault[1])
    assert config.out is not None
    if (Path(config.out) / "config.yaml").exists():
        resume(config.out, callbacks=callbacks)
    else:
        simulate(config, callbacks=callbacks)
    return "finished"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _checkpoint_not_renamed(round: int) -> None:
    replace = os.replace

    def fatal(source: Path, target: Path) -> None:
        if target.name.startswith(f"round-{round:07d}"):
            die()
        replace(source, target)

    checkpoint.os.replace = fatal  # type: ignore[assignment]


def _old_checkpoints_not_deleted(round: int) -> None:
    replace = os.replace

    def fatal(source: Path, target: Path) -> None:
        replace(source, target)
        if target.name.startswith(f"round-{round:07d}"):
            die()

    checkpoint.os.replace = fatal  # type: ignore[assignment]


def _half_a_checkpoint(round: int) -> None:
    write = checkpoint.write_atomically

    def fatal(path: Path, data: bytes | memoryview) -> None:
        if path.name.startswith(f"round-{round:07d}"):
            path.with_name(path.name + ".tmp").write_bytes(data[: len(data) // 2])
            die()
        write(path, data)

    checkpoint.write_atomically = fatal


def _metrics_not_checkpointed(round: int) -> None:
    append = RunDirectory.append_metrics

    def fatal(self: RunDirectory, row: dict[str, Any]) -> None:
        append(self, row)
        if row["round"] == round:
            die()

    RunDirectory.append_metrics = fatal  # type: ignore[method-assign]


def _half_a_row_of_metrics(round: int) -> None:
    append = RunDirectory.append_metrics

    def fatal(self: RunDirectory, row: dict[str, Any]) -> None:
        if row["round"] == round:
            with open(self.path / "metrics.jsonl", "a") as file:
                file.write('{"round": 5, "lo')
            os.sync()
            die()
        append(self, row)

    RunDirectory.append_metrics = fatal  # type: ignore[method-assign]


def _half_a_record(writes: int) -> None:
    """The slot taken is left with nonsense in it, which shows up if anyone else believes it to be his."""
    write = ClientStore.write

    def fatal(self: ClientStore, client: int, vectors: Any) -> None:
        nonlocal writes
        writes -= 1
        if writes == 0:
            for vector in self._record(self._take()).values():
                vector[: len(vector) // 2] = float("nan")
            die()
        write(self, client, vectors)

    ClientStore.write = fatal  # type: ignore[method-assign]


FAULTS: dict[str, Callable[[int], None]] = {
    "checkpoint not renamed": _checkpoint_not_renamed,
    "old checkpoints not deleted": _old_checkpoints_not_deleted,
    "half a checkpoint": _half_a_checkpoint,
    "metrics not checkpointed": _metrics_not_checkpointed,
    "half a row of metrics": _half_a_row_of_metrics,
    "half a record": _half_a_record,
}

"""Ranks as torchrun would start them, but quickly, and such that one of them can be made to die."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

from fedasd_fast.cli.main import main
from fedasd_fast.simulation import resume, simulate
from fedasd_fast.simulation.distributed.process_group import TorchProcessGroup
from tests.simulation import subprocess_runs as processes


def together(
    world: int, function: Callable[..., Any], *arguments: Any, of: dict[int, tuple[Any, ...]] | None = None
) -> list[Any]:
    """What the function gave each rank: its value, the error it raised, or the signal its process died of.  `of` has
    further arguments for some of the ranks."""
    started = start(world, function, *arguments, of=of)
    return [_answer(process, pipe) for process, pipe in started]


def start(
    world: int, function: Callable[..., Any], *arguments: Any, of: dict[int, tuple[Any, ...]] | None = None
) -> list[Any]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    more = of or {}
    return [
        processes.start(as_rank, rank, world, port, function, *arguments, *more.get(rank, ())) for rank in range(world)
    ]


def as_rank(rank: int, world: int, port: int, function: Callable[..., Any], *arguments: Any) -> Any:
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in numbers.items()}, MASTER_ADDR="127.0.0.1")
    return function(*arguments)


def _answer(process: Any, pipe: Any) -> Any:
    answer = None
    with contextlib.suppress(EOFError):
        answer = pipe.recv() if pipe.poll(60) else None
    process.join(10)
    pipe.close()
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError("a rank did not end")
    return signal.Signals(-process.exitcode) if process.exitcode < 0 else answer


def run(config: Any, **changes: Any) -> str:
    simulate(config.replace(**changes) if changes else config)
    return "finished"


def go_on(out: str, changes: dict[str, Any] | None = None) -> str:
    resume(out, changes)
    return "finished"


def command(words: list[str]) -> int:
    return main(words)


def run_with_other_seed(config: Any, seed: int = 0) -> str:
    return run(config, seed=seed)


def die_before_a_checkpoint(config: Any, number: int = 0) -> str:
    """This rank's part of the checkpoint is missing."""
    gather = TorchProcessGroup.gather
    if number:

        def fatal(self: TorchProcessGroup, part: Any) -> Any:
            nonlocal number
            if isinstance(part, dict) and "slots" in part:
                number -= 1
                if number == 0:
                    processes.die()
            return gather(self, part)

        TorchProcessGroup.gather = fatal  # type: ignore[method-assign]
    return run(config)

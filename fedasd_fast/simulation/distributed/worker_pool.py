"""Worker processes that take pieces of work from one queue, and are replaced when they die.

The queue is a pipe that holds the numbers of the pieces.  A worker reads the next one by itself, so fast workers take
more, and a worker that is killed leaves no lock behind.  Workers report which pieces they have done; pieces that are
missing in the end, because their worker died, are put in the queue again.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import pickle
import signal
import sys
import traceback
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection, forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Literal

from ...common.schema import ConfigError
from ..errors import Interrupted, SimulationError, portable
from ..system.start_errors import start_errors

_log = logging.getLogger(__name__)
_MOST_DEATHS = 3  # with the same client in a round, or one after the other before they were ready
_POLL_SECONDS = 0.1  # between two looks at whether to stop
MAX_PIECES = 500  # at most: their numbers must fit into the smallest pipe that a kernel gives


@dataclass(frozen=True)
class WorkerFailure:
    """An error on its way from a worker."""

    error: Exception
    trace: str

    @staticmethod
    def of(error: Exception) -> WorkerFailure:
        return WorkerFailure(portable(error), traceback.format_exc())

    def to_exception(self) -> Exception:
        self.error.__cause__ = RuntimeError(f"in a worker:\n{self.trace}")
        return self.error


def check_that_workers_can_start() -> None:
    if "forkserver" not in multiprocessing.get_all_start_methods():
        raise ConfigError("executor = processes: this system cannot start such workers; use executor = serial")
    if multiprocessing.current_process().daemon:
        raise ConfigError("executor = processes cannot be used in a daemonic process; use executor = serial there")


def needs_main(pickled: bytes) -> bool:
    """Whether something of the user's script is in it."""
    return b"__main__" in pickled


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """A worker that is started here does not import the user's script, which may lack the guard against that."""
    main, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@dataclass
class _PoolWorker:
    number: int
    process: BaseProcess
    pipe: Connection
    state: Literal["starting", "idle", "busy"] = "starting"


class WorkerPool:
    """Workers run `target(*arguments, number, pipe, life, queue)`, and end when nothing more can be read from `life`.
    `busy_with(number)` is the client that a worker trains, or -1; if several workers die with one client, the run ends.
    """

    def __init__(
        self,
        size: int,
        target: Callable[..., None],
        arguments: tuple[Any, ...],
        busy_with: Callable[[int], int],
        stop: Callable[[], bool],
        import_main: bool = False,
    ) -> None:
        self._target, self._arguments, self._busy_with, self._stop = target, arguments, busy_with, stop
        self._import_main = import_main
        self._deaths: Counter[int] = Counter()
        self._failed_starts = 0
        # Never a plain fork: OpenMP's threads do not survive one.  The server has imported everything and computes
        # nothing, so what is forked from it is ready at once.  The caller's script, which might compute, is not for it.
        self._context = multiprocessing.get_context("forkserver")
        preloaded = getattr(forkserver, "_forkserver", None)
        before = [name for name in getattr(preloaded, "_preload_modules", []) if name != "__main__"]
        wanted = ["fedasd_fast.simulation.executors.worker", "torch._dynamo"]
        self._context.set_forkserver_preload([*before, *(name for name in wanted if name not in before)])
        self._queue, self._feed = self._context.Pipe(duplex=False)
        os.set_blocking(self._queue.fileno(), False)
        self._theirs, self._life = self._context.Pipe(duplex=False)  # workers end when our end of it is closed
        self._workers: list[_PoolWorker] = []
        try:
            for number in range(size):
                self._workers.append(self._started(number))
            while self._in("starting"):
                self._answers()
        except BaseException:
            self.close()
            raise

    def work(self, message: Any, pieces: Sequence[Any], collect: Callable[[int, Any], None]) -> None:
        """Works off the pieces.  Each worker answers (numbers of the pieces done, result) when the queue is empty;
        `collect(worker, result)` is called with each that has done something."""
        left = list(pieces)
        assert len(left) <= MAX_PIECES
        self._deaths.clear()
        while left:
            data = pickle.dumps((message, left))
            self._fill_queue(len(left))
            self._send(data, self._in("idle"))
            done: set[int] = set()
            while self._in("busy") or not self._in("idle"):
                starting = self._in("starting")
                for worker, (numbers, result) in self._answers():
                    if numbers:
                        done.update(numbers)
                        collect(worker.number, result)
                self._send(data, [worker for worker in starting if worker.state == "idle"])
            left = [piece for number, piece in enumerate(left) if number not in done]

    def close(self) -> None:
        """Kills the workers: all that they had was for this round."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.process.close()
            worker.pipe.close()
        self._workers.clear()
        for end in (self._queue, self._feed, self._theirs, self._life):
            end.close()

    @property
    def pids(self) -> list[int]:
        return [worker.process.pid or 0 for worker in self._workers]

    def _in(self, state: str) -> list[_PoolWorker]:
        return [worker for worker in self._workers if worker.state == state]

    def _started(self, number: int) -> _PoolWorker:
        ours, theirs = self._context.Pipe()
        ends = (number, theirs, self._theirs, self._queue)
        process = self._context.Process(
            target=self._target, args=(*self._arguments, *ends), name=f"fedasd worker {number}", daemon=True
        )
        try:
            with contextlib.nullcontext() if self._import_main else _without_main():
                process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return _PoolWorker(number, process, ours)

    def _fill_queue(self, count: int) -> None:
        """The queue is empty: the last worker to answer found it empty."""
        os.write(self._feed.fileno(), b"".join(number.to_bytes(4, "little") for number in range(count)))

    def _send(self, data: bytes, workers: list[_PoolWorker]) -> None:
        for worker in workers:
            worker.state = "busy"
            with contextlib.suppress(OSError):  # it died; the end of its pipe will be read next
                worker.pipe.send_bytes(data)

    def _answers(self) -> list[tuple[_PoolWorker, Any]]:
        """Waits for the next messages of workers."""
        pipes = {worker.pipe: worker for worker in self._workers}
        while True:
            if self._stop():
                raise Interrupted("stopped")
            if found := connection.wait(list(pipes), timeout=_POLL_SECONDS):
                break
        answers = []
        for pipe in found:
            worker = pipes[pipe]  # type: ignore[index]
            try:
                answer = worker.pipe.recv()
            except (EOFError, OSError):
                self._replace(worker)
                continue
            if isinstance(answer, WorkerFailure):
                raise answer.to_exception()
            if worker.state == "busy":
                answers.append((worker, answer))
            else:
                self._failed_starts = 0
            worker.state = "idle"
        return answers

    def _replace(self, dead: _PoolWorker) -> None:
        dead.process.join()
        code, client = dead.process.exitcode or 0, self._busy_with(dead.number)
        how = f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended with exit code {code}"
        if dead.state == "starting":
            self._failed_starts += 1
            if self._failed_starts == _MOST_DEATHS:
                raise SimulationError(
                    f"{_MOST_DEATHS} workers died before they were ready, the last one {how}: is there enough memory "
                    f"for {len(self._workers)} of them? Set workers to fewer, or see why with executor = serial. A "
                    'script with data or a model of its own must start the run below `if __name__ == "__main__":`'
                )
        elif dead.state == "busy" and client >= 0:
            self._deaths[client] += 1
            if self._deaths[client] == _MOST_DEATHS:
                raise SimulationError(
                    f"{_MOST_DEATHS} workers died while they trained client {client}, the last one {how}: out of "
                    "memory? Use fewer workers, or set executor = serial to see why"
                )
        _log.warning("worker %d %s; another takes its place, and its clients run again", dead.number, how)
        dead.pipe.close()
        dead.process.close()
        with start_errors(1):
            self._workers[dead.number] = self._started(dead.number)

"""A worker process: builds its workplace once, then trains and evaluates what it finds in the queue."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import torch

from ...algorithms import Server
from ...config import Config
from ..cohort import Report, Sums, Task, Workplace
from ..distributed.worker_pool import Failure
from ..evaluation import evaluate_batches
from ..storage.client_store import Lent
from ..system.shared_memory import Board, SharedFile, loads


@dataclass(frozen=True)
class Setup:
    """What a worker is made from; sent once."""

    config: Config
    given: bytes  # data and model of the user's own, or None, pickled
    large: SharedFile  # their large tensors
    threads: int
    at_once: int
    board: Board
    store: Lent


@dataclass(frozen=True)
class Assignment:
    """Clients to train at once, and for each the slots of its record and of its next."""

    tasks: list[Task]
    slots: dict[int, tuple[int, int]]


def main(setup: Setup, number: int, pipe: Connection, life: Connection, queue: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the parent decides
    threading.Thread(target=_end_with_parent, args=(life,), daemon=True).start()
    torch.set_num_threads(setup.threads)
    try:
        worker = _Worker(setup, number, queue)
    except Exception as error:
        pipe.send(Failure.of(error))
        return
    pipe.send("ready")
    while True:
        try:
            message, pieces = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        try:
            answer: Any = worker.answer(message, pieces)
        except Exception as error:
            answer = Failure.of(error)
        pipe.send(answer)


def _end_with_parent(life: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        life.recv_bytes()
    os._exit(1)


class _Worker:
    def __init__(self, setup: Setup, number: int, queue: Connection) -> None:
        from ..run import workplace  # which imports this
        from . import local

        self.number, self.board, self.store, self._queue = number, setup.board, setup.store, queue
        self._lock = setup.store.hold()
        self.board.current[number] = -1
        if setup.config.device == "cuda":  # one GPU after the other
            torch.cuda.set_device(number % torch.cuda.device_count())
        data, model = loads(setup.given, setup.large)
        place = workplace(setup.config, data, model, None)
        initial = self.board.initial.to(place.initial.device)
        self.place: Workplace = replace(
            place, initial=initial, store=self.store, threads=setup.threads, at_once=setup.at_once
        )
        self.trainer = local(self.place)

    def answer(self, message: tuple[Any, ...], pieces: Sequence[Any]) -> tuple[list[int], Any]:
        kind, *rest = message
        taken: list[int] = []
        work = self._train if kind == "train" else self._evaluate
        return taken, work(self._take(pieces, taken), *rest)

    def _take(self, pieces: Sequence[Any], taken: list[int]) -> Iterator[Any]:
        """The next pieces of the queue, until it is empty."""
        while True:
            try:
                number = int.from_bytes(os.read(self._queue.fileno(), 4), "little")
            except BlockingIOError:
                return
            taken.append(number)
            yield pieces[number]

    def _train(self, pieces: Iterator[list[Assignment]], round: int, lr: float) -> list[Report]:
        place, board = self.place, self.board
        device = place.initial.device
        state = {name: vector.to(device) for name, vector in board.state.items()}
        server = Server(round, lr, board.model.to(device), state, place.data.num_clients)
        rows = board.sums[self.number].to(device)
        sums = Sums.over(rows, place.method.client_state)
        for count, piece in enumerate(pieces):
            if count == 0:
                rows.zero_()  # now: whoever comes too late for any piece has no work at all
            for group in piece:
                board.current[self.number] = group.tasks[0].client
                self.store.borrow(group.slots)
                self.trainer.train(server, group.tasks, sums)
        board.current[self.number] = -1
        board.sums[self.number].copy_(rows)  # on a CPU they are the same
        return sums.reports

    def _evaluate(self, pieces: Iterator[tuple[int, range]]) -> list[tuple[int, range, list[tuple[int, float]]]]:
        place, config = self.place, self.place.config
        return [
            (
                which,
                numbers,
                evaluate_batches(
                    place.trainer.model, self.board.evaluated[which], place.data, config.eval_batch_size, numbers
                ),
            )
            for which, numbers in pieces
        ]

"""A worker process: builds its context once, then trains and evaluates what it finds in the queue."""

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

from ...config import Config
from ..aggregation.reports import ClientReports
from ..cohort import ClientTask
from ..context import Parallelism, build_context
from ..distributed.worker_pool import WorkerFailure
from ..evaluation import evaluate_batches
from ..inputs import Inputs
from ..storage.client_store import WorkerStore
from ..system.shared_memory import SharedBuffers, SharedMemory, loads
from ..system.tf32 import tf32
from .local import local_executor


@dataclass(frozen=True)
class WorkerSetup:
    """What a worker is made from; sent once."""

    config: Config
    inputs: bytes  # the caller's own data and model, pickled
    large_tensors: SharedMemory  # of these
    parallelism: Parallelism
    buffers: SharedBuffers
    records: WorkerStore
    watchers: bytes  # callbacks with on_client, pickled


@dataclass(frozen=True)
class Assignment:
    """Clients to train at once, and for each the slots of its record and of its next."""

    tasks: Sequence[ClientTask]
    slots: dict[int, tuple[int, int]]


def main(setup: WorkerSetup, number: int, pipe: Connection, life: Connection, queue: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the parent decides
    threading.Thread(target=_end_with_parent, args=(life,), daemon=True).start()
    torch.set_num_threads(setup.parallelism.threads)
    try:
        worker = _Worker(setup, number, queue)
    except Exception as error:
        pipe.send(WorkerFailure.of(error))
        return
    pipe.send("ready")
    with tf32(setup.config.tf32):
        _answer_all(worker, pipe)


def _answer_all(worker: _Worker, pipe: Connection) -> None:
    """Until the parent closes the pipe."""
    while True:
        try:
            message, pieces = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        try:
            answer: Any = worker.answer(message, pieces)
        except Exception as error:
            answer = WorkerFailure.of(error)
        pipe.send(answer)


def _end_with_parent(life: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        life.recv_bytes()
    os._exit(1)


class _Worker:
    def __init__(self, setup: WorkerSetup, number: int, queue: Connection) -> None:
        self._number, self._buffers, self._records, self._queue = number, setup.buffers, setup.records, queue
        self._lock = setup.records.lock_directory()
        self._buffers.current[number] = -1
        if setup.config.device == "cuda":  # one GPU after the other
            torch.cuda.set_device(number % torch.cuda.device_count())
        inputs: Inputs = loads(setup.inputs, setup.large_tensors)
        context = build_context(setup.config, inputs, records=self._records, parallelism=setup.parallelism)
        context = replace(context, watchers=pickle.loads(setup.watchers))
        self._context = replace(context, initial=self._buffers.initial.to(context.initial.device))
        self._executor = local_executor(self._context)

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

    def _train(self, pieces: Iterator[list[Assignment]], round: int, scale: float | None) -> ClientReports:
        context, buffers = self._context, self._buffers
        device = context.initial.device
        state = {name: vector.to(device) for name, vector in buffers.state.items()}
        server = context.experiment.server_at(round, buffers.model.to(device), state, context.initial, scale)
        rows = buffers.sums[self._number].to(device)
        sums = context.sum_layout.over(rows)
        for count, piece in enumerate(pieces):
            if count == 0:
                rows.zero_()  # only now: a worker that finds the queue empty leaves its sums as they are
            for group in piece:
                buffers.current[self._number] = group.tasks[0].client
                self._records.assign(group.slots)
                self._executor.train_group(server, group.tasks, sums)
        buffers.current[self._number] = -1
        buffers.sums[self._number].copy_(rows)  # on a CPU they are the same
        return sums.reports

    def _evaluate(self, pieces: Iterator[tuple[int, range]]) -> list[tuple[int, range, list[tuple[int, float]]]]:
        model, experiment = self._context.trainer.model, self._context.experiment
        results = []
        for which, numbers in pieces:
            vector, size = self._buffers.evaluated[which], experiment.config.eval_batch_size
            results.append((which, numbers, evaluate_batches(model, vector, experiment.data, size, numbers)))
        return results

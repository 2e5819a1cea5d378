"""Worker processes on one machine, one a core: any number of them gives the same bits.

Vectors are in shared memory; a round is one short message to each worker and one back.  The longest clients are first
in the queue, so that workers finish together.  Each worker has its own sums, in fixed point, which are added here.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence

from torch import Tensor

from ...algorithms import Server
from ...callbacks import Callback
from ...common.schema import ConfigError
from ..aggregation.reports import ClientReports
from ..aggregation.sums import Sums
from ..cohort import ClientTask, CohortTasks, group_steps, group_tasks
from ..context import Context
from ..distributed.worker_pool import MAX_PIECES, WorkerPool, check_that_workers_can_start, needs_main
from ..evaluation import batches, summed
from ..inputs import Inputs
from ..storage.client_store import ClientStore
from ..system.shared_memory import SharedBuffers, SharedMemory, dumps
from ..system.start_errors import start_errors
from ..system.threads import threads
from .base import Executor
from .worker import Assignment, WorkerSetup, main


class ProcessesExecutor(Executor):
    def __init__(self, context: Context) -> None:
        super().__init__(context)
        check_that_workers_can_start()
        assert isinstance(context.records, ClientStore)
        self._records = context.records
        with start_errors(context.workers):
            self._large_tensors = SharedMemory()
        self._inputs = pickled_inputs(context.inputs, self._large_tensors)
        pickled_watchers(context.watchers)  # so that a run whose workers cannot have them does not begin
        self.workers = context.workers
        self._pool: WorkerPool | None = None

    def start(self) -> None:
        if self._pool is None:
            with start_errors(self.workers):
                self._start()

    def _start(self) -> None:
        context, initial = self.context, self.context.initial
        watchers = pickled_watchers(context.watchers)  # with what their on_start has set
        states = context.experiment.method.server_state
        self._buffers = SharedBuffers(len(initial), initial.dtype, states, context.sum_layout.rows, self.workers)
        self._buffers.initial.copy_(initial)
        self._buffers.current.fill_(-1)
        setup = WorkerSetup(
            context.experiment.config,
            self._inputs,
            self._large_tensors,
            context.parallelism,
            self._buffers,
            self._records.for_workers(),
            watchers,
        )
        self._pool = WorkerPool(
            self.workers,
            main,
            (setup,),
            lambda n: int(self._buffers.current[n]),
            context.trainer.stop,
            import_main=needs_main(self._inputs) or needs_main(watchers),
        )

    def run(self, server: Server, tasks: Sequence[ClientTask]) -> Sums:
        with threads(1):  # for copies and additions, beside workers that need the cores
            return self._run(server, tasks)

    def _run(self, server: Server, tasks: Sequence[ClientTask]) -> Sums:
        self.start()
        assert self._pool is not None
        buffers, layout = self._buffers, self.context.sum_layout
        buffers.model.copy_(self.context.experiment.sent(server))
        for name, vector in buffers.state.items():
            vector.copy_(self.context.experiment.layout.whole(server.state[name]))
        slots = self._records.reserve(CohortTasks.of(tasks).clients.tolist())
        sums = layout.empty()

        def add(worker: int, reports: ClientReports) -> None:
            part = layout.over(buffers.sums[worker].to(layout.device))
            part.reports.extend(reports)
            sums.add(part)

        try:
            self._pool.work(("train", server.round, server.loss_scale), self._pieces(tasks, slots), add)
        except BaseException:
            self.close()  # others still train, and write to slots that are about to be given back
            raise
        self._records.commit(sums.reports.clients.tolist())
        return sums

    def evaluate(self, vectors: Sequence[Tensor]) -> list[tuple[float, float]]:
        self.start()
        assert self._pool is not None
        experiment = self.context.experiment
        count = batches(experiment.data, experiment.config.eval_batch_size)
        with threads(1):
            for shared, vector in zip(self._buffers.evaluated, vectors, strict=False):
                shared.copy_(vector)
        each = -(-count * len(vectors) // MAX_PIECES)
        pieces = [
            (which, range(first, min(first + each, count)))
            for which in range(len(vectors))
            for first in range(0, count, each)
        ]
        found = [[(0, 0.0)] * count for _ in vectors]

        def add(_: int, results: list[tuple[int, range, list[tuple[int, float]]]]) -> None:
            for which, numbers, values in results:
                found[which][numbers.start : numbers.stop] = values

        try:
            self._pool.work(("evaluate",), pieces, add)
        except BaseException:
            self.close()
            raise
        return [summed(values, experiment.data) for values in found]

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def _pieces(self, tasks: Sequence[ClientTask], slots: dict[int, tuple[int, int]]) -> list[list[Assignment]]:
        """Longest first; groups that take next to nothing go together."""
        experiment = self.context.experiment
        groups = group_tasks(experiment, tasks, self.context.parallelism.clients_at_once)
        steps = group_steps(experiment, groups)
        least = sum(steps) / (MAX_PIECES // 2)
        pieces: list[list[Assignment]] = []
        room = 0.0
        for number in sorted(range(len(groups)), key=lambda i: -steps[i]):
            room -= steps[number]
            if room < 0:
                pieces.append([])
                room = least - steps[number]
            ids = [task.client for task in groups[number]]
            pieces[-1].append(Assignment(groups[number], dict(zip(ids, map(slots.__getitem__, ids), strict=True))))
        return pieces


def pickled_inputs(inputs: Inputs, large_tensors: SharedMemory) -> bytes:
    try:
        return dumps(inputs, large_tensors)
    except Exception as error:
        raise ConfigError(
            "executor = processes sends your data and model to its workers by pickle, which cannot be done with them: "
            f"{error}; define their classes and functions at the top of a module, or use executor = serial"
        ) from error


def pickled_watchers(callbacks: Sequence[Callback]) -> bytes:
    for callback in callbacks:
        try:
            pickle.dumps(callback)
        except Exception as error:
            raise ConfigError(
                "executor = processes sends callbacks with on_client to its workers by pickle, which cannot be done "
                f"with {type(callback).__name__}: {error}; define its class at the top of a module and open files and "
                "the like in on_client, or use executor = serial or stacked"
            ) from error
    return pickle.dumps(tuple(callbacks))

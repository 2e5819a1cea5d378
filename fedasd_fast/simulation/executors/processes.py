"""Worker processes on one machine, one a core: any number of them gives the same bits.

Vectors are in shared memory; a round is one short message to each worker and one back.  The longest clients are first
in the queue, so that workers finish together.  Each worker has sums of its own, in fixed point, which are added here.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ...algorithms import Server
from ...common.schema import ConfigError
from ..cohort import Report, Sums, Task, Workplace
from ..distributed.worker_pool import PIECES, Pool, check_that_workers_can_start, needs_main
from ..evaluation import batches, summed
from ..system.shared_memory import Board, SharedFile, dumps
from ..system.threads import threads
from .base import Executor
from .worker import Assignment, Setup, main


class Processes(Executor):
    def __init__(self, place: Workplace) -> None:
        super().__init__(place)
        check_that_workers_can_start()
        self._large = SharedFile()
        self._given = pickled(place, self._large)
        self.workers = place.workers
        self._pool: Pool | None = None

    def start(self) -> None:
        if self._pool is not None:
            return
        place = self.place
        states = place.method.server_state
        self._board = Board(len(place.initial), place.initial.dtype, states, place.sum_rows, self.workers)
        self._board.initial.copy_(place.initial)
        self._board.current.fill_(-1)
        setup = Setup(
            place.config, self._given, self._large, place.threads, place.at_once, self._board, place.store.lend()
        )
        self._pool = Pool(
            self.workers,
            main,
            (setup,),
            lambda n: int(self._board.current[n]),
            place.stop,
            import_main=needs_main(self._given),
        )

    def run(self, server: Server, tasks: Sequence[Task]) -> Sums:
        with threads(1):  # for copies and additions, beside workers that need the cores
            return self._run(server, tasks)

    def _run(self, server: Server, tasks: Sequence[Task]) -> Sums:
        self.start()
        assert self._pool is not None
        place, board = self.place, self._board
        board.model.copy_(server.model)
        for name, vector in board.state.items():
            vector.copy_(server.state[name])
        slots = place.store.reserve(task.client for task in tasks)
        sums = place.empty_sums()

        def add(worker: int, reports: list[Report]) -> None:
            part = Sums.over(board.sums[worker].to(place.initial.device), place.method.client_state)
            part.reports.extend(reports)
            sums.add(part)

        try:
            self._pool.work(("train", server.round, server.lr), self._pieces(tasks, slots), add)
        except BaseException:
            self.close()  # others still train, and write to slots that are about to be given back
            raise
        place.store.commit(report.client for report in sums.reports if report.error is None)
        return sums

    def evaluate(self, vectors: Sequence[Tensor]) -> list[tuple[float, float]]:
        self.start()
        assert self._pool is not None
        count = batches(self.place.data, self.place.config.eval_batch_size)
        with threads(1):
            for mine, vector in zip(self._board.evaluated, vectors, strict=False):
                mine.copy_(vector)
        each = -(-count * len(vectors) // PIECES)
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
        return [summed(values, self.place.data) for values in found]

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def _pieces(self, tasks: Sequence[Task], slots: dict[int, tuple[int, int]]) -> list[list[Assignment]]:
        """Longest first; groups that take next to nothing go together."""
        groups = [Assignment(g, {task.client: slots[task.client] for task in g}) for g in self.place.groups(tasks)]
        steps = [sum(self.place.expected_steps(task) for task in group.tasks) for group in groups]
        least = sum(steps) / (PIECES // 2)
        pieces: list[list[Assignment]] = []
        room = 0.0
        for number in sorted(range(len(groups)), key=lambda i: -steps[i]):
            room -= steps[number]
            if room < 0:
                pieces.append([])
                room = least - steps[number]
            pieces[-1].append(groups[number])
        return pieces


def pickled(place: Workplace, large: SharedFile) -> bytes:
    try:
        return dumps(place.given, large)
    except Exception as error:
        raise ConfigError(
            "executor = processes sends your data and model to its workers by pickle, which cannot be done with them: "
            f"{error}; define their classes and functions at the top of a module, or use executor = serial"
        ) from error

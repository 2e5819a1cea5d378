"""Ranks that torchrun started, on one machine or several: each trains some of a round's clients, then all add their
sums, in fixed point, with one all-reduce.  Any number of ranks gives the same bits.

What is known of the clients travels in the same buffer: numbers as they are, floats as the integers that their bits
spell.  An entry that only one rank fills is exact in the sum.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import torch
from torch import Tensor

from ...algorithms import Server
from ..cohort import Report, Sums, Task, Workplace
from ..distributed.process_group import Ranks, agreed
from ..errors import ClientError, Interrupted, SimulationError, portable
from ..evaluation import batches, evaluate_batches, summed
from ..system.threads import threads
from .base import Executor
from .local import Local

_FINISHED, _DROPPED = 1, 2


class Torchrun(Executor):
    def __init__(self, place: Workplace, local: Local, ranks: Ranks) -> None:
        super().__init__(place)
        self._local, self._ranks = local, ranks

    def run(self, server: Server, tasks: Sequence[Task]) -> Sums:
        place = self.place
        rows, size = place.sum_rows, len(place.initial)
        buffer = torch.zeros(rows * size + 5 * len(tasks) + 3, dtype=torch.int64, device=place.initial.device)
        sums = Sums.over(buffer[: rows * size].view(rows, size), place.method.client_state)
        failure: Exception | None = None
        try:
            with threads(place.threads):
                for group in place.groups(self._mine(tasks)):
                    self._local.train(server, group, sums)
        except Exception as error:  # the others must hear of it: they would wait for ever
            failure = portable(error)
        dropped = {report.client: report.error for report in sums.reports if report.error}
        sent = torch.tensor([int(failure is not None), len(dropped)])
        mark = _fingerprint(server.model)
        tail = torch.cat([_table(tasks, sums.reports).view(-1), sent, mark.view(1).cpu()])
        buffer[rows * size :] = tail.to(buffer.device)
        self._ranks.add(buffer)
        tail = buffer[rows * size :].cpu()
        failed, drops, marks = tail[-3:]
        if failed:
            raise self._worst(failure)
        if marks != mark.cpu() * self._ranks.world:
            raise SimulationError(
                f"the ranks' models differ at the start of round {server.round + 1}: their machines compute "
                "differently; use machines of one kind, and the same versions of torch"
            )
        errors: dict[int, str | None] = {}
        for part in self._ranks.gather(dropped) if drops else ():
            errors |= part
        sums.reports[:] = _reports(tasks, tail[:-3].view(-1, 5), errors)
        return sums

    def evaluate(self, vectors: Sequence[Tensor]) -> list[tuple[float, float]]:
        place, batch_size = self.place, self.place.config.eval_batch_size
        count = batches(place.data, batch_size)
        found = torch.zeros(len(vectors), count, 2, dtype=torch.int64)
        with threads(place.threads):
            for which, vector in enumerate(vectors):
                mine = [b for b in range(count) if (which * count + b) % self._ranks.world == self._ranks.rank]
                values = evaluate_batches(place.trainer.model, vector, place.data, batch_size, mine)
                for batch, (right, loss) in zip(mine, values, strict=True):
                    found[which, batch] = torch.stack([torch.tensor(right), _bits(loss)])
        on_device = found.to(place.initial.device)
        self._ranks.add(on_device)
        return [summed(((int(right), _number(loss)) for right, loss in model), place.data) for model in on_device.cpu()]

    def _mine(self, tasks: Sequence[Task]) -> list[Task]:
        place, ranks = self.place, self._ranks
        if place.store.names:  # a client's record is with its owner
            return [task for task in tasks if place.part.owns(task.client)]
        shares: list[list[Task]] = [[] for _ in range(ranks.world)]
        loads = [(0, rank) for rank in range(ranks.world)]
        for task in sorted(tasks, key=lambda task: (-place.expected_steps(task), task.client)):
            load, rank = heapq.heappop(loads)
            shares[rank].append(task)
            heapq.heappush(loads, (load + place.expected_steps(task), rank))
        return shares[ranks.rank]

    def _worst(self, mine: Exception | None) -> Exception:
        """The same error in all ranks: that of the first client if there is one."""
        errors = [error for error in self._ranks.gather(mine) if error is not None]

        def order(error: Exception) -> tuple[bool, bool, int]:
            client = error.client if isinstance(error, ClientError) else 0
            return isinstance(error, Interrupted), not isinstance(error, ClientError), client

        return agreed(min(errors, key=order))


def _fingerprint(model: Tensor) -> Tensor:
    """A number that is the same only where all bits are, but for the rarest chance."""
    bits = model.view(torch.int32 if model.element_size() == 4 else torch.int64).long()
    return (bits * torch.arange(1, 2 * len(bits), 2, device=bits.device)).sum()


def _bits(number: float) -> Tensor:
    return torch.tensor(number, dtype=torch.float64).view(torch.int64)


def _number(bits: Tensor) -> float:
    return float(bits.view(torch.float64))


def _table(tasks: Sequence[Task], reports: Sequence[Report]) -> Tensor:
    """int64 [tasks, 5]: finished or dropped, steps, samples, loss, distance."""
    table, rows = torch.zeros(len(tasks), 5, dtype=torch.int64), {task.client: i for i, task in enumerate(tasks)}
    for report in reports:
        row = table[rows[report.client]]
        row[0] = _DROPPED if report.error else _FINISHED
        row[1], row[2] = report.steps, report.samples
        row[3], row[4] = _bits(report.loss), _bits(report.distance)
    return table


def _reports(tasks: Sequence[Task], table: Tensor, errors: dict[int, str | None]) -> list[Report]:
    return [
        Report(task.client, int(row[1]), int(row[2]), _number(row[3]), _number(row[4]), errors.get(task.client))
        for task, row in zip(tasks, table, strict=True)
        if row[0]
    ]

"""Ranks that torchrun started, on one machine or several: each trains some of a round's clients, then all add their
sums, in fixed point, with one all-reduce.  Any number of ranks gives the same bits.

What is known of the clients travels in the same buffer: numbers as they are, floats as the integers that their bits
spell.  An entry that only one rank fills is exact in the sum.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ...algorithms import Server
from ..aggregation.sums import ClientReport, Sums
from ..cohort import ClientTask, group_tasks, local_steps
from ..context import Context
from ..distributed.process_group import ProcessGroup, agreed
from ..distributed.record_exchange import ExchangedRecords
from ..errors import ClientError, Interrupted, SimulationError, portable
from ..evaluation import batches, evaluate_batches, summed
from ..system.threads import threads
from .base import Executor
from .local import local_executor

_FINISHED, _DROPPED = 1, 2  # first column of the table of clients
_COLUMNS = 6  # of that table: finished or dropped, steps, samples, loss, distance, skipped steps


class TorchrunExecutor(Executor):
    def __init__(self, context: Context, group: ProcessGroup) -> None:
        super().__init__(context)
        self._group = group
        self._exchange: ExchangedRecords | None = None
        if context.records.names and context.parallelism.clients_at_once > 1:
            size, dtype = len(context.initial), context.initial.dtype
            self._exchange = ExchangedRecords(context.records, context.shard, group, size, dtype)
            context = replace(context, records=self._exchange)
        self._local = local_executor(context)

    def run(self, server: Server, tasks: Sequence[ClientTask]) -> Sums:
        context, layout = self.context, self.context.sum_layout
        rows, size = layout.rows, layout.size
        buffer = torch.zeros(rows * size + _COLUMNS * len(tasks) + 3, dtype=torch.int64, device=layout.device)
        sums = layout.over(buffer[: rows * size].view(rows, size))
        dealt = self._deal(group_tasks(context.experiment, tasks, context.parallelism.clients_at_once))
        trainer_of = {task.client: rank for rank, groups in enumerate(dealt) for group in groups for task in group}
        if self._exchange:
            self._exchange.send_to_trainers(trainer_of)
        failure: Exception | None = None
        try:
            with threads(context.parallelism.threads):
                for group in dealt[self._group.rank]:
                    self._local.train_group(server, group, sums)
        except Exception as error:  # sent to the other ranks below, which would wait for this one for ever
            failure = portable(error)
        dropped = {report.client: report.error for report in sums.reports if report.error}
        sent = torch.tensor([int(failure is not None), len(dropped)])
        mark = _fingerprint(server.model)
        tail = torch.cat([_table(tasks, sums.reports).view(-1), sent, mark.view(1).cpu()])
        buffer[rows * size :] = tail.to(buffer.device)
        self._group.all_reduce(buffer)
        tail = buffer[rows * size :].cpu()
        failed, drops, marks = tail[-3:]
        if failed:
            raise self._worst(failure)
        if marks != mark.cpu() * self._group.world:
            raise SimulationError(
                f"the ranks' models differ at the start of round {server.round + 1}: their machines compute "
                "differently; use machines of one kind, and the same versions of torch"
            )
        errors: dict[int, str | None] = {}
        for part in self._group.gather(dropped) if drops else ():
            errors |= part
        sums.reports[:] = _reports(tasks, tail[:-3].view(-1, _COLUMNS), errors)
        if self._exchange:
            self._exchange.return_to_owners(trainer_of, [r.client for r in sums.reports if r.error is None])
        return sums

    def evaluate(self, vectors: Sequence[Tensor]) -> list[tuple[float, float]]:
        experiment, model, group = self.context.experiment, self.context.trainer.model, self._group
        data, batch_size = experiment.data, experiment.config.eval_batch_size
        count = batches(data, batch_size)
        found = torch.zeros(len(vectors), count, 2, dtype=torch.int64)
        with threads(self.context.parallelism.threads):
            for which, vector in enumerate(vectors):
                mine = [b for b in range(count) if (which * count + b) % group.world == group.rank]
                values = evaluate_batches(model, vector, data, batch_size, mine)
                for batch, (right, loss) in zip(mine, values, strict=True):
                    found[which, batch] = torch.stack([torch.tensor(right), _bits(loss)])
        on_device = found.to(self.context.initial.device)
        group.all_reduce(on_device)
        return [summed(((int(right), _number(loss)) for right, loss in model), data) for model in on_device.cpu()]

    def _deal(self, groups: Sequence[list[ClientTask]]) -> list[list[list[ClientTask]]]:
        """The groups of each rank, the same in all ranks."""
        context = self.context
        dealt: list[list[list[ClientTask]]] = [[] for _ in range(self._group.world)]
        if context.records.names and not self._exchange:  # each client is trained where its record is
            for group in groups:
                dealt[context.shard.owner(group[0].client)].append(group)
            return dealt
        steps = [sum(local_steps(context.experiment, task) for task in group) for group in groups]
        loads = [(0, rank) for rank in range(self._group.world)]
        for number in sorted(range(len(groups)), key=lambda i: (-steps[i], groups[i][0].client)):
            load, rank = heapq.heappop(loads)
            dealt[rank].append(groups[number])
            heapq.heappush(loads, (load + steps[number], rank))
        return dealt

    def _worst(self, mine: Exception | None) -> Exception:
        """The same error in all ranks: that of the first client if there is one."""
        errors = [error for error in self._group.gather(mine) if error is not None]

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


def _table(tasks: Sequence[ClientTask], reports: Sequence[ClientReport]) -> Tensor:
    table = torch.zeros(len(tasks), _COLUMNS, dtype=torch.int64)
    rows = {task.client: i for i, task in enumerate(tasks)}
    for report in reports:
        row = table[rows[report.client]]
        row[0] = _DROPPED if report.error else _FINISHED
        row[1], row[2] = report.steps, report.samples
        row[3], row[4], row[5] = _bits(report.loss), _bits(report.distance), report.skipped
    return table


def _reports(tasks: Sequence[ClientTask], table: Tensor, errors: Mapping[int, str | None]) -> list[ClientReport]:
    return [
        ClientReport(
            task.client,
            int(row[1]),
            int(row[2]),
            _number(row[3]),
            _number(row[4]),
            errors.get(task.client),
            int(row[5]),
        )
        for task, row in zip(tasks, table, strict=True)
        if row[0]
    ]

"""Ranks that torchrun started, on one machine or several: each trains some of a round's clients, then all add their
sums, in fixed point, with one all-reduce.  Any number of ranks gives the same bits.

What is known of the clients travels in the same buffer: numbers as they are, floats as the integers that their bits
spell.  An entry that only one rank fills is exact in the sum.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ...algorithms import Server
from ..aggregation.reports import COLUMNS, ClientReports
from ..aggregation.sums import Sums
from ..cohort import ClientTask, CohortTasks, group_steps, group_tasks
from ..context import Context
from ..distributed.process_group import ProcessGroup, agreed
from ..distributed.record_exchange import ExchangedRecords
from ..errors import ClientError, Interrupted, SimulationError, portable
from ..evaluation import batches, evaluate_batches, summed
from ..system.threads import threads
from .base import Executor
from .local import local_executor

_COLUMNS = len(COLUMNS)  # of the table of clients, with 1 for a client that finished in place of its id


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
        dropped = sums.reports.errors
        sent = torch.tensor([int(failure is not None), len(dropped)])
        mark = _fingerprint(context.experiment.sent(server))
        ids = CohortTasks.of(tasks).clients
        tail = torch.cat([_table(ids, sums.reports).view(-1), sent, mark.view(1).cpu()])
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
        errors: dict[int, str] = {}
        for part in self._group.gather(dropped) if drops else ():
            errors |= part
        sums.reports = _reports(ids, tail[:-3].view(-1, _COLUMNS), errors)
        if self._exchange:
            self._exchange.return_to_owners(trainer_of, sums.reports.clients.tolist())
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

    def _deal(self, groups: Sequence[Sequence[ClientTask]]) -> list[list[Sequence[ClientTask]]]:
        """The groups of each rank, the same in all ranks."""
        context = self.context
        dealt: list[list[Sequence[ClientTask]]] = [[] for _ in range(self._group.world)]
        if context.records.names and not self._exchange:  # each client is trained where its record is
            for group in groups:
                dealt[context.shard.owner(group[0].client)].append(group)
            return dealt
        steps = group_steps(context.experiment, groups)
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


def _table(ids: np.ndarray, reports: ClientReports) -> Tensor:
    """[m, columns] of the round's clients, zeros for those that this rank knows nothing of."""
    table, order = np.zeros((len(ids), _COLUMNS), np.int64), np.argsort(ids)
    rows = order[np.searchsorted(ids, reports.clients, sorter=order)]
    table[rows] = reports.bits()
    table[rows, 0] = 1
    return torch.from_numpy(table)


def _reports(ids: np.ndarray, table: Tensor, errors: dict[int, str]) -> ClientReports:
    rows = table.numpy()
    finished = rows[:, 0] != 0
    return ClientReports.from_bits(np.column_stack([ids[finished], rows[finished, 1:]]), errors)

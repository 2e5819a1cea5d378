"""Adds client updates to a round's sums, and writes what the clients keep."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...algorithms import Client, Server
from ..aggregation import fixed_point
from ..aggregation.sums import ClientReport, Sums
from ..client.stacked_trainer import StackedRun
from ..client.update import ClientUpdate
from ..cohort import ClientTask
from ..experiment import Experiment
from ..storage.client_store import ClientRecords


class Aggregator:
    def __init__(self, experiment: Experiment, records: ClientRecords, initial: Tensor) -> None:
        self._experiment, self._records, self._initial = experiment, records, initial

    def add(self, sums: Sums, server: Server, task: ClientTask, update: ClientUpdate) -> None:
        run, k = update.run, task.client
        fixed_point.accumulate(sums.mean, update.model, task.weight)
        for name, before in update.client.state.items():
            fixed_point.accumulate(sums.change[name], update.state[name] - before, 1 / server.clients)
        for name in self._experiment.method.sent:
            fixed_point.accumulate(sums.change[name], update.state[name], task.weight)
        if sums.all_change is not None:
            part = self._experiment.proportion(k)
            fixed_point.accumulate(sums.all_change, run.end - self._initial, part)
            if update.record:  # the very integers that were added then: rounding is symmetric
                before = update.record["upload"].to(run.end.device)
                fixed_point.accumulate(sums.all_change, before - self._initial, -part)
        self._records.write(k, {**update.state, "upload": run.end})
        distance = float(torch.linalg.vector_norm(run.end - server.model))
        sums.reports.append(ClientReport(k, len(run.losses), run.samples, float(run.losses.double().mean()), distance))

    def add_stacked(
        self,
        sums: Sums,
        server: Server,
        tasks: Sequence[ClientTask],
        clients: Sequence[Client],
        before: Sequence[dict[str, Tensor] | None],  # their records
        run: StackedRun,
        states: dict[str, Tensor],  # [K, P] each
        distances: Tensor,  # [K]
        scratch: Tensor,  # [K, P]
        models: Tensor | None = None,  # [K, P] what they send, if not where their training ended
    ) -> None:
        """What `add` does, for K clients at once: sums of integers have the same bits in any grouping."""
        ends = run.ends
        weights = [task.weight for task in tasks]
        fixed_point.accumulate(sums.mean, ends if models is None else models, weights)
        for name, state in states.items():
            if name in self._experiment.method.sent:
                fixed_point.accumulate(sums.change[name], state, weights)
                continue
            old = torch.stack([client.state[name] for client in clients], out=scratch)
            parts = [1 / server.clients] * len(tasks)
            fixed_point.accumulate(sums.change[name], torch.sub(state, old, out=scratch), parts)
        if sums.all_change is not None:
            parts = [self._experiment.proportion(task.client) for task in tasks]
            fixed_point.accumulate(sums.all_change, torch.sub(ends, self._initial, out=scratch), parts)
            known = [(record["upload"], -part) for record, part in zip(before, parts, strict=True) if record]
            if known:
                uploads = torch.stack([upload.to(ends.device) for upload, _ in known], out=scratch[: len(known)])
                fixed_point.accumulate(sums.all_change, uploads.sub_(self._initial), [part for _, part in known])
        steps = run.active.sum(1)
        losses = run.losses.double().where(run.active, 0.0).sum(1) / steps
        numbers = zip(steps.tolist(), run.samples, losses.tolist(), distances.tolist(), strict=True)
        for k, (task, (count, samples, loss, distance)) in enumerate(zip(tasks, numbers, strict=True)):
            self._records.write(task.client, {name: state[k] for name, state in states.items()} | {"upload": ends[k]})
            sums.reports.append(ClientReport(task.client, count, samples, loss, distance))

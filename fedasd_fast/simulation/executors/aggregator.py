"""Adds client updates to a round's sums, and writes what the clients keep."""

from __future__ import annotations

import torch
from torch import Tensor

from ...algorithms import Server
from ..aggregation import fixed_point
from ..aggregation.sums import Sums
from ..client.cohort_clients import CohortClients
from ..client.stacked_trainer import StackedRun
from ..client.update import ClientUpdate
from ..cohort import ClientTask, CohortTasks
from ..experiment import Experiment
from ..storage.client_store import ClientRecords


class Aggregator:
    def __init__(self, experiment: Experiment, records: ClientRecords, initial: Tensor) -> None:
        self._experiment, self._records, self._initial = experiment, records, initial

    def add(self, sums: Sums, server: Server, task: ClientTask, update: ClientUpdate) -> None:
        run, k, layout = update.run, task.client, self._experiment.layout
        fixed_point.accumulate(sums.mean, update.model, task.weight)
        for name, before in update.client.state.items():
            fixed_point.accumulate(layout.trained(sums.change[name]), update.state[name] - before, 1 / server.clients)
        for name in self._experiment.method.sent:
            fixed_point.accumulate(layout.trained(sums.change[name]), update.state[name], task.weight)
        if sums.all_change is not None:
            part = self._experiment.proportion(k)
            fixed_point.accumulate(sums.all_change, run.end - self._initial, part)
            if update.record:  # the very integers that were added then: rounding is symmetric
                before = update.record["upload"].to(run.end.device)
                fixed_point.accumulate(sums.all_change, before - self._initial, -part)
        kept = {name: layout.whole(vector) for name, vector in update.state.items()}
        self._records.write(k, {**kept, "upload": run.end})
        distance = float(torch.linalg.vector_norm(layout.shared(layout.trained(run.end) - server.model)))
        loss = float(run.losses.double().mean())
        sums.reports.add(k, len(run.losses), run.samples, loss, distance, run.skipped)

    def add_stacked(
        self,
        sums: Sums,
        server: Server,
        tasks: CohortTasks,
        clients: CohortClients,
        run: StackedRun,
        states: dict[str, Tensor],  # [K, P] each
        scratch: Tensor,  # [K, N]
        models: Tensor | None = None,  # [K, N] what they send, if not where their training ended
    ) -> None:
        """What `add` does, for K clients at once: sums of integers have the same bits in any grouping."""
        ends, layout = run.ends, self._experiment.layout
        weights, method = tasks.weights.tolist(), self._experiment.method
        fixed_point.accumulate(sums.mean, ends if models is None else models, weights)
        for name in method.sent:
            fixed_point.accumulate(layout.trained(sums.change[name]), states[name], weights)
        kept = {name: states[name] for name in method.client_state}
        for name, state in kept.items():
            parts = [1 / server.clients] * len(tasks)
            change = torch.sub(state, clients.state[name], out=scratch.view(-1)[: state.numel()].view_as(state))
            fixed_point.accumulate(layout.trained(sums.change[name]), change, parts)
        if sums.all_change is not None:
            proportions, known = self._experiment.proportions(tasks.clients), clients.known
            fixed_point.accumulate(sums.all_change, torch.sub(ends, self._initial, out=scratch), proportions.tolist())
            if known.any():
                uploads = scratch[: known.sum()]
                self._records.read_cohort("upload", tasks.clients[known], uploads)
                fixed_point.accumulate(sums.all_change, uploads.sub_(self._initial), (-proportions[known]).tolist())
        rows = {name: layout.whole(state) for name, state in kept.items()}
        self._records.write_cohort(tasks.clients, {**rows, "upload": ends})
        steps = run.active.sum(1)
        losses = run.losses.double().where(run.active, 0.0).sum(1) / steps
        skipped = torch.zeros_like(steps) if run.skipped is None else run.skipped
        numbers = [column.cpu().numpy() for column in (steps, losses, run.distances, skipped)]
        sums.reports.add(tasks.clients, numbers[0], run.samples, *numbers[1:])

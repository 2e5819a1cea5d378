"""K clients of the round trained at once in this process, on stacked parameters.

Groups depend on the round alone (cohort.group_tasks): the sums have the same bits for any number of processes and any
order of groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...algorithms import Client, Server
from ..aggregation import fixed_point
from ..aggregation.sums import Sums
from ..client.stacked_trainer import StackedRun, StackedTrainer
from ..client.update import checked_update, contribution, finish, load_client
from ..cohort import ClientTask
from ..context import Context
from ..errors import Interrupted
from ..experiment import Experiment
from .in_process import InProcessExecutor


class StackedExecutor(InProcessExecutor):
    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._trainer = StackedTrainer(context.trainer)

    def train_group(self, server: Server, group: Sequence[ClientTask], sums: Sums) -> None:
        experiment, like = self.context.experiment, self.context.initial
        records = [self.context.records.read(task.client) for task in group]
        pairs = zip(group, records, strict=True)
        clients = [load_client(experiment, task.client, record, like) for task, record in pairs]
        try:
            run = self._trainer.train(server, group, clients)
            states, models = _finish(experiment, server, clients, run)
        except Interrupted:
            raise
        except Exception:  # of one operation for all, which does not say whose it was: one after the other, then
            for task in group:
                self.train_one(server, task, sums)
            return
        scratch = self._trainer.stack_of(len(group)).gradient
        distances = torch.linalg.vector_norm(torch.sub(run.ends, server.model, out=scratch), dim=1)
        if _all_usable(server, run, states if models is None else {**states, "contribution": models}, distances):
            self._aggregator.add_stacked(sums, server, group, clients, records, run, states, distances, scratch, models)
            return
        for k, task in enumerate(group):
            with self.dropping(task, sums):
                update = checked_update(experiment, server, clients[k], records[k], run.client(k))
                self._aggregator.add(sums, server, task, update)


def _finish(
    experiment: Experiment, server: Server, clients: Sequence[Client], run: StackedRun
) -> tuple[dict[str, Tensor], Tensor | None]:
    """What the clients keep and send beside their models, [K, P] each, and what they send as models; None: the ends."""
    method = experiment.method
    result = {name: torch.empty_like(run.ends) for name in (*method.client_state, *method.sent)}
    models = torch.empty_like(run.ends) if "contribution" in experiment.hooks else None
    if result or models is not None:
        for k, steps in enumerate(run.active.sum(1).tolist()):
            one = run.client(k)
            state = finish(experiment, server, clients[k], one, steps) if result else {}
            for name, rows in result.items():
                rows[k] = state[name]
            if models is not None:
                models[k] = contribution(experiment, server, clients[k], one, steps)
    return result, models


def _all_usable(server: Server, run: StackedRun, states: dict[str, Tensor], distances: Tensor) -> bool:
    """Whether all went well, as far as can be told at a glance: else each client is looked at on its own.

    No entry of a model is larger than the largest of the server's and the distance from it together.
    """
    checks = [run.losses.where(run.active, 0.0).isfinite().all()]
    checks.append((distances + server.model.abs().max() < fixed_point.LIMIT).all())  # false for NaN
    checks += [state.abs().max() < fixed_point.LIMIT for state in states.values()]
    return bool(torch.stack(checks).all())

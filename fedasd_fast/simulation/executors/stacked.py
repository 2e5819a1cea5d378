"""K clients of the round trained at once in this process, on stacked parameters.

Groups depend on the round alone (cohort.group_tasks): the sums have the same bits for any number of processes and any
order of groups.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from ...algorithms import Server
from ..aggregation import fixed_point
from ..aggregation.sums import Sums
from ..client.chain_trainer import ChainTrainer
from ..client.cohort_clients import CohortClients, cohort_finish
from ..client.stacked_trainer import StackedRun, StackedTrainer
from ..client.update import checked_update, contribution, finish
from ..cohort import ClientTask, CohortTasks
from ..context import Context
from ..errors import Interrupted
from ..experiment import Experiment
from .in_process import InProcessExecutor

_log = logging.getLogger(__name__)


class StackedExecutor(InProcessExecutor):
    def __init__(self, context: Context) -> None:
        super().__init__(context)
        chain = context.chain
        self._trainer = StackedTrainer(context.trainer) if chain is None else ChainTrainer(context.trainer, chain)

    def train_group(self, server: Server, group: Sequence[ClientTask], sums: Sums) -> None:
        experiment, like = self.context.experiment, self.context.initial
        tasks = CohortTasks.of(group)
        clients = CohortClients(experiment, tasks.clients, self.context.records, like)
        try:
            run = self._trainer.train(server, tasks, clients)
            servers = clients.servers(server)
            states, models = _finish(experiment, server, clients, run, servers)
        except Interrupted:
            raise
        except Exception as error:  # of one operation for all, which does not say whose it was: one by one, then
            _log.info("%d clients at once could not be trained, so one by one: %s", len(group), error)
            for task in group:
                if self.context.chain is None or len(group) == 1:
                    self.train_one(server, task, sums)
                else:  # the others have the bits that they would have had in the group
                    self.train_group(server, [task], sums)
            return
        checked = dict(states) if models is None else {**states, "contribution": models}
        if experiment.layout.statistics_size or experiment.layout.local is not None:
            checked["model"] = run.ends  # distances are those of parameters that are sent
        if _all_usable(server, run, checked):
            scratch = self._trainer.scratch(len(group))
            self._aggregator.add_stacked(sums, server, tasks, clients, run, states, scratch, models)
            for k, task in enumerate(group) if self._watch else ():
                self._watch.tell(server, task, run.client(k))
            return
        for k, task in enumerate(group):
            with self.dropping(task, sums):
                record = self.context.records.read(task.client)
                own = server if servers is None else servers[k]
                update = checked_update(experiment, own, clients[k], record, run.client(k))
                self._aggregator.add(sums, server, task, update)
                self._watch.tell(server, task, update.run)


def _finish(
    experiment: Experiment,
    server: Server,
    clients: CohortClients,
    run: StackedRun,
    servers: Sequence[Server] | None,  # as each client sees it; None: all see the same
) -> tuple[dict[str, Tensor], Tensor | None]:
    """What the clients keep and send beside their models, [K, P] each, and what they send as models; None: the ends."""
    method, ends = experiment.method, experiment.layout.trained(run.ends)
    if "contribution" not in experiment.hooks and run.duals is None and servers is None:
        return cohort_finish(method, server, clients, ends, run.updates), None
    states = {name: torch.empty_like(ends) for name in (*method.client_state, *method.sent)}
    models = torch.empty_like(run.ends) if "contribution" in experiment.hooks else None
    for k, steps in enumerate(run.updates.tolist()):
        one, own = run.client(k), server if servers is None else servers[k]
        state = finish(experiment, own, clients[k], one, steps) if states else {}
        for name, rows in states.items():
            rows[k] = state[name]
        if models is not None:
            models[k] = contribution(experiment, own, clients[k], one, steps)
    return states, models


def _all_usable(server: Server, run: StackedRun, states: dict[str, Tensor]) -> bool:
    """Whether all went well, as far as can be told at a glance: else each client is looked at on its own.

    No entry of a model is larger than the largest of the server's and the distance from it together.
    """
    checks = [run.losses.where(run.active, 0.0).isfinite().all()]
    checks.append((run.distances + server.model.abs().max() < fixed_point.LIMIT).all())  # false for NaN
    checks += [state.abs().max() < fixed_point.LIMIT for state in states.values()]
    return bool(torch.stack(checks).all())

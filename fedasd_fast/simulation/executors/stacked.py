"""K clients of the round trained at once, on stacked parameters.

Which of them depends on the round alone (Workplace.groups): whoever trains them, in whatever order, the sums have the
same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ...algorithms import Client, Server
from ...data.federated import FederatedData
from ..aggregation import fixed_point
from ..client.flat_model import FlatModel
from ..client.stacked_model import StackedModel
from ..client.stacked_trainer import GroupRun, GroupTraining
from ..cohort import Report, Sums, Task, Workplace, add_client, conclude, dropping, run_client
from ..errors import Interrupted
from .local import Local

_GROUP_BYTES = 512 * 2**20  # of the vectors and samples that are held at once
# A step goes over parameters and gradients several times: on a CPU it is fastest while those of all its clients are in
# a cache, unless it has so few of them that it is mostly overhead.  And more than some gain little, but would leave
# nothing to other workers, who share a round by groups.
_CACHE_BYTES = 4 * 2**20
_FEWEST, _MOST = 4, 32


class Stacked(Local):
    def __init__(self, place: Workplace) -> None:
        super().__init__(place)
        self._rows = place.initial.new_empty(2, 0, len(place.initial))  # memory of the stack, kept from group to group
        self._stack: StackedModel | None = None

    def train(self, server: Server, group: Sequence[Task], sums: Sums) -> None:
        place, stack = self.place, self._stack_of(len(group))
        place.trainer.model.vector.copy_(server.model)  # the teacher
        records = [place.store.read(task.client) for task in group]
        clients = [place.client(task.client, record) for task, record in zip(group, records, strict=True)]
        try:
            run = GroupTraining(place, stack, server, group, clients).train()
            states = _finish(place, server, clients, run)
        except Interrupted:
            raise
        except Exception:  # of one operation for all, which does not say whose it was: one after the other, then
            for task in group:
                run_client(place, server, task, sums)
            return
        distances = torch.linalg.vector_norm(torch.sub(run.ends, server.model, out=stack.gradients), dim=1)
        if _usable(server, run, states, distances):
            _add(place, group, records, clients, run, states, distances, sums, spare=stack.gradients)
            return
        for k, task in enumerate(group):
            with dropping(place, task, sums):
                add_client(place, server, task, conclude(place, server, clients[k], records[k], run.client(k)), sums)

    def _stack_of(self, clients: int) -> StackedModel:
        if self._stack is None or len(self._stack) != clients:
            if self._rows.shape[1] < clients:
                self._rows = self._rows.new_empty(2, clients, self._rows.shape[2])
            self._stack = StackedModel(self.place.trainer.model, *self._rows[:, :clients])
        return self._stack


def _finish(place: Workplace, server: Server, clients: Sequence[Client], run: GroupRun) -> dict[str, Tensor]:
    """What the clients keep: [K, P] each."""
    if not place.method.client_state:
        return {}
    result = {name: torch.empty_like(run.ends) for name in place.method.client_state}
    for k, steps in enumerate(run.active.sum(1).tolist()):
        state = place.method.finish(server, clients[k], run.ends[k], steps)
        for name, rows in result.items():
            rows[k] = state[name]
    return result


def _usable(server: Server, run: GroupRun, states: dict[str, Tensor], distances: Tensor) -> bool:
    """Whether all went well, as far as can be told at a glance: else each client is looked at on its own.

    No entry of a model is larger than the largest of the server's and the distance from it together.
    """
    checks = [run.losses.where(run.active, 0.0).isfinite().all()]
    checks.append((distances + server.model.abs().max() < fixed_point.LIMIT).all())  # false for NaN
    checks += [state.abs().max() < fixed_point.LIMIT for state in states.values()]
    return bool(torch.stack(checks).all())


def _add(
    place: Workplace,
    tasks: Sequence[Task],
    records: Sequence[dict[str, Tensor] | None],
    clients: Sequence[Client],
    run: GroupRun,
    states: dict[str, Tensor],
    distances: Tensor,
    sums: Sums,
    spare: Tensor,  # [K, P] to calculate in
) -> None:
    """What `add_client` does, for all of them at once: sums of integers have the same bits in any grouping."""
    ends = run.ends
    fixed_point.accumulate(sums.mean, ends, [task.weight for task in tasks])
    for name, kept in states.items():
        before = torch.stack([client.state[name] for client in clients], out=spare)
        part = [1 / place.data.num_clients] * len(tasks)
        fixed_point.accumulate(sums.change[name], torch.sub(kept, before, out=spare), part)
    if sums.all_change is not None:
        shares = [place.share(task.client) for task in tasks]
        fixed_point.accumulate(sums.all_change, torch.sub(ends, place.initial, out=spare), shares)
        known = [(record["upload"], -share) for record, share in zip(records, shares, strict=True) if record]
        if known:
            uploads = torch.stack([upload.to(ends.device) for upload, _ in known], out=spare[: len(known)])
            fixed_point.accumulate(sums.all_change, uploads.sub_(place.initial), [share for _, share in known])
    steps = run.active.sum(1)
    losses = run.losses.double().where(run.active, 0.0).sum(1) / steps
    numbers = zip(steps.tolist(), run.samples, losses.tolist(), distances.tolist(), strict=True)
    for k, (task, (count, samples, loss, distance)) in enumerate(zip(tasks, numbers, strict=True)):
        place.store.write(task.client, {name: kept[k] for name, kept in states.items()} | {"upload": ends[k]})
        sums.reports.append(Report(task.client, count, samples, loss, distance))


def as_many_as_fit(model: FlatModel, data: FederatedData) -> int:
    """Clients to train at once."""
    width = model.vector.element_size()
    vectors = 6 * len(model)  # parameters, gradient, v, velocity, what an ascent saves, and autograd's
    samples = 3 * int(data.sizes.max()) * math.prod(data.input_shape)
    fitting = max(1, _GROUP_BYTES // (width * (vectors + samples)))
    if model.vector.is_cuda:
        return fitting
    cached = _CACHE_BYTES // (width * 2 * len(model))
    return min(fitting, max(_FEWEST, min(cached, _MOST)))

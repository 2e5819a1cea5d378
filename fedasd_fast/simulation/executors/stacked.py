"""K clients of the round trained at once, on stacked parameters.

Clients are sorted by size and taken in chunks.  Which chunks there are depends on the tasks and the configuration only:
whoever trains them, in whatever order, the sums have the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ...algorithms import Client, Server
from ...typed import ConfigError
from .. import fixed_point
from ..cohort import Report, Sums, Task, Workplace, add_client, conclude, dropping, run_client
from ..errors import Interrupted
from ..stacked_model import StackedModel, why_not
from ..threads import threads
from .chunk import Chunk, ChunkRun

_CHUNK_BYTES = 512 * 2**20  # of the vectors and samples that are held at once
# A step goes over parameters and gradients several times, which is slower once they leave the last cache; but a step of
# too few clients is mostly overhead.
_CACHE_BYTES = 4 * 2**20
_ENOUGH = 8


class Stacked:
    def __init__(self, place: Workplace) -> None:
        if reason := why_not(place.trainer.model.module):
            raise ConfigError(f"executor = stacked: {reason}; use executor = serial")
        self._place = place
        self._stack: StackedModel | None = None

    def run(self, server: Server, tasks: Sequence[Task]) -> Sums:
        sums = self._place.empty_sums()
        with threads(self._place.threads):
            for chunk in chunks(self._place, tasks):
                self.run_chunk(server, chunk, sums)
        return sums

    def run_chunk(self, server: Server, tasks: Sequence[Task], sums: Sums) -> None:
        """Trains the clients of one chunk and adds them to the sums."""
        place = self._place
        place.trainer.model.vector.copy_(server.model)  # the teacher
        if self._stack is None or len(self._stack) != len(tasks):
            self._stack = StackedModel(place.trainer.model, len(tasks))
        records = [place.store.read(task.client) for task in tasks]
        clients = [place.client(task.client, record) for task, record in zip(tasks, records, strict=True)]
        try:
            corrections = [place.method.correction(server, client) for client in clients]
            run = Chunk(place, self._stack, server, tasks, corrections).train()
            states = _finish(place, server, clients, run)
        except Interrupted:
            raise
        except Exception:  # of one operation for all, which does not say whose it was: one after the other, then
            for task in tasks:
                run_client(place, server, task, sums)
            return
        distances = torch.linalg.vector_norm(torch.sub(run.ends, server.model, out=self._stack.gradients), dim=1)
        if _usable(server, run, states, distances):
            self._add(server, tasks, records, clients, run, states, distances.tolist(), sums)
            return
        for k, task in enumerate(tasks):
            with dropping(place, task, sums):
                add_client(place, server, task, conclude(place, server, clients[k], records[k], run.client(k)), sums)

    def _add(
        self,
        server: Server,
        tasks: Sequence[Task],
        records: Sequence[dict[str, Tensor] | None],
        clients: Sequence[Client],
        run: ChunkRun,
        states: dict[str, Tensor],
        distances: list[float],
        sums: Sums,
    ) -> None:
        """What `add_client` does, for all of them at once: sums of integers have the same bits in any grouping."""
        place, ends = self._place, run.ends
        assert self._stack is not None
        fixed_point.accumulate(sums.mean, ends, [task.weight for task in tasks])
        for name, kept in states.items():
            before = torch.stack([client.state[name] for client in clients])
            fixed_point.accumulate(sums.change[name], kept - before, [1 / place.data.num_clients] * len(tasks))
        if sums.all_change is not None:
            spare, shares = self._stack.gradients, [place.share(task.client) for task in tasks]
            fixed_point.accumulate(sums.all_change, torch.sub(ends, place.initial, out=spare), shares)
            if known := [k for k, record in enumerate(records) if record]:
                uploads = torch.stack([record["upload"] for record in records if record]).to(ends.device)
                fixed_point.accumulate(sums.all_change, uploads.sub_(place.initial), [-shares[k] for k in known])
        losses = run.losses.double().where(run.active, 0.0).sum(1)
        steps = run.active.sum(1)
        means = (losses / steps).tolist()
        for k, (task, count) in enumerate(zip(tasks, steps.tolist(), strict=True)):
            place.store.write(task.client, {name: kept[k] for name, kept in states.items()} | {"upload": ends[k]})
            sums.reports.append(Report(task.client, count, run.samples[k], means[k], distances[k]))


def _finish(place: Workplace, server: Server, clients: Sequence[Client], run: ChunkRun) -> dict[str, Tensor]:
    """What the clients keep: [K, P] each."""
    if not place.method.client_state:
        return {}
    steps = run.active.sum(1).tolist()
    found = [place.method.finish(server, *each) for each in zip(clients, run.ends, steps, strict=True)]
    return {name: torch.stack([state[name] for state in found]) for name in place.method.client_state}


def _usable(server: Server, run: ChunkRun, states: dict[str, Tensor], distances: Tensor) -> bool:
    """Whether all went well, as far as can be told at a glance: else each client is looked at on its own.

    No entry of a model is larger than the largest of the server's and the distance from it together.
    """
    checks = [run.losses.where(run.active, 0.0).isfinite().all()]
    checks.append((distances + server.model.abs().max() < fixed_point.LIMIT).all())  # false for NaN
    checks += [state.abs().max() < fixed_point.LIMIT for state in states.values()]
    return bool(torch.stack(checks).all())


def chunks(place: Workplace, tasks: Sequence[Task]) -> list[list[Task]]:
    """The tasks, largest clients first, in pieces that are trained at once."""
    sizes = place.data.sizes
    left = sorted(tasks, key=lambda task: (-int(sizes[task.client]), task.client))
    found: list[list[Task]] = []
    while left:
        pieces = math.ceil(len(left) / _at_once(place, int(sizes[left[0].client])))
        count = math.ceil(len(left) / pieces)
        found.append(left[:count])
        left = left[count:]
    return found


def _at_once(place: Workplace, largest: int) -> int:
    """How many clients of at most `largest` samples."""
    vectors = 6 * len(place.initial)  # parameters, gradient, v, velocity, what an ascent saves, and autograd's
    samples = 3 * largest * math.prod(place.data.input_shape)
    fitting = _CHUNK_BYTES // (place.initial.element_size() * (vectors + samples))
    cached = _CACHE_BYTES // (place.initial.element_size() * 2 * len(place.initial))
    return max(1, min(fitting, max(cached, _ENOUGH)))

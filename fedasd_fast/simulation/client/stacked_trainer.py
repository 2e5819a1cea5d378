"""Local training of K clients at once, on stacked parameters.

The smaller ones are padded: a missing sample has the label PADDING, and a client that has no batch in a step has the
learning rate 0, so it stays as it is.  Each client sees the batches that it would see alone, and each has its own norm,
loss and teacher weights.  What the steps of a client are is known before the first one: orders and learning rates are
laid out for all of them at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...algorithms import Client, Server
from ...data.host_to_device import send
from ..cohort import ClientTask, CohortTasks
from ..errors import Interrupted
from .cohort_clients import cohort_correction
from .cohort_samples import CohortSamples
from .extended_step import ExtendedStep
from .stacked_model import StackedModel
from .step_terms import stacked_terms, step_terms
from .teacher import PADDING
from .trainer import LocalRun, Trainer


@dataclass(frozen=True)
class StackedRun:
    ends: Tensor  # [K, P] where training ended: the stack's own vectors
    losses: Tensor  # [K, steps]
    active: Tensor  # [K, steps] who had a batch
    samples: np.ndarray  # [K] that training went through, epochs counted
    distances: Tensor  # [K] of the ends from the server's model
    skipped: Tensor | None = None  # [K] steps whose gradient overflowed in float16; None: none
    duals: Tensor | None = None  # [K, P] of the method's perturbations

    @property
    def updates(self) -> Tensor:
        """[K] the steps that changed a client's model; at least 1."""
        steps = self.active.sum(1)
        return steps if self.skipped is None else (steps - self.skipped).clamp_(min=1)

    def client(self, k: int) -> LocalRun:
        skipped = 0 if self.skipped is None else int(self.skipped[k])
        dual = None if self.duals is None else self.duals[k]
        return LocalRun(self.ends[k], self.losses[k, self.active[k]], int(self.samples[k]), skipped, dual)


class StackedTrainer:
    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        vector = trainer.model.vector
        self._memory = vector.new_empty(2, 0, len(vector))  # of the stack, kept from group to group
        self._stack: StackedModel | None = None

    def stack_of(self, clients: int) -> StackedModel:
        if self._stack is None or len(self._stack) != clients:
            if self._memory.shape[1] < clients:
                self._memory = self._memory.new_empty(2, clients, self._memory.shape[2])
            self._stack = StackedModel(self._trainer.model, *self._memory[:, :clients])
        return self._stack

    def scratch(self, clients: int) -> Tensor:
        """[K, P] of memory for whoever wants it between runs."""
        return self.stack_of(clients).gradient

    def train(self, server: Server, tasks: Sequence[ClientTask], clients: Sequence[Client]) -> StackedRun:
        return _GroupRun(self._trainer, self.stack_of(len(tasks)), server, tasks, clients).train()


class _GroupRun:
    def __init__(
        self,
        trainer: Trainer,
        stack: StackedModel,
        server: Server,
        tasks: Sequence[ClientTask],
        clients: Sequence[Client],
    ) -> None:
        self._trainer, self._stack, self._server = trainer, stack, server
        config, data, like = trainer.experiment.config, trainer.experiment.data, trainer.model.vector
        self._step, self._clients = trainer.local_step(stack), clients
        method, weight_decay = trainer.experiment.method, config.optimizer.weight_decay
        self._step.begin(*cohort_correction(method, server, clients, weight_decay), server.loss_scale)
        if isinstance(self._step, ExtendedStep):
            terms = [step_terms(trainer.experiment, server, client, like) for client in clients]
            self._step.extend(stacked_terms(terms, stack.vector))
        tasks = CohortTasks.of(tasks)
        self._samples = CohortSamples(config, data, server.round, tasks.clients, tasks.epochs, like)
        self._targets = self._samples.padded(self._samples.targets, PADDING)  # [K, N], or [K, N, T]

    def train(self) -> StackedRun:
        trainer, config, lr = self._trainer, self._trainer.experiment.config, self._server.lr
        teacher, cached = trainer.teacher(self._server) if trainer.distils else None, config.teacher != "recompute"
        if teacher is not None:
            trainer.model.vector.copy_(teacher)  # the common one: a pass over all clients' samples, padding included
        active = self._active()  # [E, batches, K]
        rates = None if active.all() else send(torch.from_numpy(active * lr), self._targets.device)
        samples = self._samples
        order = samples.padded_orders()  # [E, K, N]
        positions = order + torch.arange(len(self._stack), device=order.device).unsqueeze(1) * order.shape[2]
        labels = self._targets.flatten(0, 1)[positions]  # [E, K, N], or [E, K, N, T]
        inputs = samples.padded(samples.inputs)  # [K, N, ..]
        if teacher is not None and cached:
            trainer.set_teachers(self._step, inputs, self._targets)
        self._stack.vector.copy_(self._server.model)
        if "start" in trainer.experiment.hooks:
            for row, client in zip(self._stack.vector, self._clients, strict=True):
                row.copy_(trainer.start(self._server, client))
        losses: list[Tensor] = []  # [K] each
        for epoch in range(len(order)):
            if samples.changing:
                inputs = samples.padded(samples.view(epoch))
            if teacher is not None and not cached:
                trainer.set_teachers(self._step, inputs, self._targets)
            x = inputs.flatten(0, 1).index_select(0, positions[epoch].flatten()).view_as(inputs)
            parts = [part.split(config.batch_size, 1) for part in (x, labels[epoch], order[epoch])]
            for x, y, rows, rate in zip(*parts, [lr] * active.shape[1] if rates is None else rates[epoch], strict=True):
                if trainer.stop():
                    raise Interrupted("stopped")
                losses.append(self._step.run(x, y, rows, rate))
        mask = send(torch.from_numpy(active), self._targets.device).flatten(0, 1).T
        ends, seen = self._stack.vector, samples.epochs * samples.sizes
        change = torch.sub(ends, self._server.model, out=self._stack.gradient)
        distances = torch.linalg.vector_norm(change, dim=1)
        return StackedRun(ends, torch.stack(losses, 1), mask, seen, distances, self._step.skipped, self._duals())

    def _duals(self) -> Tensor | None:
        perturbation = self._step.terms.perturbation if isinstance(self._step, ExtendedStep) else None
        return None if perturbation is None else perturbation.dual

    def _active(self) -> np.ndarray:
        """[E, batches, K]: who has a batch."""
        samples = self._samples
        epochs = np.arange(samples.epochs.max())[:, None, None]
        starts = np.arange(0, samples.sizes.max(), self._trainer.experiment.config.batch_size)[:, None]
        active: np.ndarray = (epochs < samples.epochs) & (starts < samples.sizes)
        return active

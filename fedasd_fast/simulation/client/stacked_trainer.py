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
from ...loss.teacher_cache import TeacherCache
from ..cohort import ClientTask, CohortTasks
from ..errors import Interrupted
from .cohort_clients import cohort_correction
from .cohort_samples import CohortSamples
from .local_step import LocalStep
from .stacked_model import StackedModel
from .teacher import PADDING, teacher_outputs
from .trainer import LocalRun, Trainer


@dataclass(frozen=True)
class StackedRun:
    ends: Tensor  # [K, P] where training ended: the stack's own vectors
    losses: Tensor  # [K, steps]
    active: Tensor  # [K, steps] who had a batch
    samples: np.ndarray  # [K] that training went through, epochs counted
    distances: Tensor  # [K] of the ends from the server's model
    skipped: Tensor | None = None  # [K] steps whose gradient overflowed in float16; None: none

    @property
    def updates(self) -> Tensor:
        """[K] the steps that changed a client's model; at least 1."""
        steps = self.active.sum(1)
        return steps if self.skipped is None else (steps - self.skipped).clamp_(min=1)

    def client(self, k: int) -> LocalRun:
        skipped = 0 if self.skipped is None else int(self.skipped[k])
        return LocalRun(self.ends[k], self.losses[k, self.active[k]], int(self.samples[k]), skipped)


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
        self._trainer.model.vector.copy_(server.model)  # the teacher
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
        self._step = LocalStep(config, stack)
        method, weight_decay = trainer.experiment.method, config.optimizer.weight_decay
        self._step.begin(*cohort_correction(method, server, clients, weight_decay), server.loss_scale)
        tasks = CohortTasks.of(tasks)
        self._samples = CohortSamples(config, data, server.round, tasks.clients, tasks.epochs, like)
        self._targets = self._samples.padded(self._samples.targets, PADDING)  # [K, N]

    def train(self) -> StackedRun:
        trainer, config, lr = self._trainer, self._trainer.experiment.config, self._server.lr
        distils, cached = trainer.distillation is not None, config.teacher != "recompute"
        active = self._active()  # [E, batches, K]
        rates = None if active.all() else send(torch.from_numpy(active * lr), self._targets.device)
        samples = self._samples
        order = samples.padded_orders()  # [E, K, N]
        positions = order + torch.arange(len(self._stack), device=order.device).unsqueeze(1) * order.shape[2]
        labels = self._targets.take(positions)
        inputs = samples.padded(samples.inputs)  # [K, N, ..]
        if distils and cached:
            self._step.set_teacher(self._teacher(inputs))
        self._stack.vector.copy_(self._server.model)
        losses: list[Tensor] = []  # [K] each
        for epoch in range(len(order)):
            if samples.changing:
                inputs = samples.padded(samples.view(epoch))
            if distils and not cached:
                self._step.set_teacher(self._teacher(inputs))
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
        return StackedRun(ends, torch.stack(losses, 1), mask, seen, distances, self._step.skipped)

    def _active(self) -> np.ndarray:
        """[E, batches, K]: who has a batch."""
        samples = self._samples
        epochs = np.arange(samples.epochs.max())[:, None, None]
        starts = np.arange(0, samples.sizes.max(), self._trainer.experiment.config.batch_size)[:, None]
        active: np.ndarray = (epochs < samples.epochs) & (starts < samples.sizes)
        return active

    def _teacher(self, inputs: Tensor) -> TeacherCache:
        """One pass of the common teacher over all clients' samples, padding included."""
        trainer = self._trainer
        assert trainer.distillation is not None
        num_classes = trainer.experiment.data.num_classes
        return teacher_outputs(trainer.model, inputs, self._targets, num_classes, trainer.distillation)

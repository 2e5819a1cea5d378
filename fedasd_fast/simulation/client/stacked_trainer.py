"""Local training of K clients at once, on stacked parameters.

The smaller ones are padded: a missing sample has the label PADDING, and a client that has no batch in a step has the
learning rate 0, so it stays as it is.  Each client sees the batches that it would see alone, and each has its own norm,
loss and teacher weights.  What the steps of a client are is known before the first one: orders and learning rates are
laid out for all of them at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ...algorithms import Client, Correction, Server
from ...data.host_to_device import send
from ...loss.teacher_cache import TeacherCache
from ..cohort import ClientTask
from ..errors import Interrupted
from .local_step import LocalStep
from .samples import LocalSamples
from .stacked_model import StackedModel
from .teacher import PADDING, teacher_outputs
from .trainer import LocalRun, Trainer


@dataclass(frozen=True)
class StackedRun:
    ends: Tensor  # [K, P] where training ended: the stack's own vectors
    losses: Tensor  # [K, steps]
    active: Tensor  # [K, steps] who had a batch
    samples: list[int]  # [K] that training went through, epochs counted
    skipped: list[int]  # [K] steps whose gradient overflowed in float16

    def client(self, k: int) -> LocalRun:
        return LocalRun(self.ends[k], self.losses[k, self.active[k]], self.samples[k], self.skipped[k])


class StackedTrainer:
    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        vector = trainer.model.vector
        self._memory = vector.new_empty(2, 0, len(vector))  # of the stack, kept from group to group
        self._stack: StackedModel | None = None

    def stack_of(self, clients: int) -> StackedModel:
        """The stack's parameters and gradients; between runs they may serve as scratch memory."""
        if self._stack is None or len(self._stack) != clients:
            if self._memory.shape[1] < clients:
                self._memory = self._memory.new_empty(2, clients, self._memory.shape[2])
            self._stack = StackedModel(self._trainer.model, *self._memory[:, :clients])
        return self._stack

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
        corrections = [trainer.experiment.method.correction(server, client) for client in clients]
        decay = [config.optimizer.weight_decay + correction.decay for correction in corrections]
        decays = send(torch.tensor(decay, dtype=torch.float64), like.device)  # [K]
        self._step.begin(_stacked(corrections, stack.vector), decays, server.loss_scale)
        self._samples = [LocalSamples(config, data, server.round, task.client, like) for task in tasks]
        self._targets = _padded([samples.targets for samples in self._samples], PADDING)  # [K, N]
        self._sizes = np.array([len(samples) for samples in self._samples])
        self._epochs = np.array([task.epochs for task in tasks])

    def train(self) -> StackedRun:
        trainer, config, lr = self._trainer, self._trainer.experiment.config, self._server.lr
        distils, cached = trainer.distillation is not None, config.teacher != "recompute"
        active = self._active()  # [E, batches, K]
        rates = None if active.all() else send(torch.from_numpy(active * lr), self._targets.device)
        order = self._order()  # [E, K, N]
        positions = order + torch.arange(len(self._stack), device=order.device).unsqueeze(1) * order.shape[2]
        labels = self._targets.take(positions)
        inputs = _padded([samples.inputs for samples in self._samples])  # [K, N, ..]
        if distils and cached:
            self._step.set_teacher(self._teacher(inputs))
        self._stack.vector.copy_(self._server.model)
        losses: list[Tensor] = []  # [K] each
        for epoch in range(len(order)):
            if self._samples[0].changing:
                pairs = zip(self._samples, self._epochs, strict=True)
                inputs = _padded([s.view() if epoch < epochs else s.inputs for s, epochs in pairs])
            if distils and not cached:
                self._step.set_teacher(self._teacher(inputs))
            x = inputs.flatten(0, 1).index_select(0, positions[epoch].flatten()).view_as(inputs)
            parts = [part.split(config.batch_size, 1) for part in (x, labels[epoch], order[epoch])]
            for x, y, rows, rate in zip(*parts, [lr] * active.shape[1] if rates is None else rates[epoch], strict=True):
                if trainer.stop():
                    raise Interrupted("stopped")
                losses.append(self._step.run(x, y, rows, rate))
        mask = send(torch.from_numpy(active), self._targets.device).flatten(0, 1).T
        samples, skipped = (self._epochs * self._sizes).tolist(), self._step.skipped
        counts = [0] * len(samples) if skipped is None else skipped.tolist()
        return StackedRun(self._stack.vector, torch.stack(losses, 1), mask, samples, counts)

    def _active(self) -> np.ndarray:
        """[E, batches, K]: who has a batch."""
        epochs = np.arange(self._epochs.max())[:, None, None]
        starts = np.arange(0, self._sizes.max(), self._trainer.experiment.config.batch_size)[:, None]
        active: np.ndarray = (epochs < self._epochs) & (starts < self._sizes)
        return active

    def _order(self) -> Tensor:
        """The samples of all epochs in their order, [E, K, N]; padding stays behind them."""
        epochs, (clients, longest) = self._epochs.max(), self._targets.shape
        order = np.tile(np.arange(longest), (epochs, clients, 1))
        for k, samples in enumerate(self._samples):
            samples.shuffle(order[: self._epochs[k], k, : self._sizes[k]])
        return send(torch.from_numpy(order), self._targets.device)

    def _teacher(self, inputs: Tensor) -> TeacherCache:
        """One pass of the common teacher over all clients' samples, padding included."""
        trainer = self._trainer
        assert trainer.distillation is not None
        num_classes = trainer.experiment.data.num_classes
        return teacher_outputs(trainer.model, inputs, self._targets, num_classes, trainer.distillation)


def _stacked(corrections: Sequence[Correction], like: Tensor) -> Correction:
    """One correction for K clients: a, rho and epsilon are the same for all, v is [K, P]."""
    last = corrections[-1]
    if last.linear is None:
        return last
    linear = torch.empty_like(like)
    for row, correction in zip(linear, corrections, strict=True):
        assert correction.linear is not None
        row.copy_(correction.linear)
    return replace(last, linear=linear)


def _padded(parts: list[Tensor], value: int = 0) -> Tensor:
    """[K, N, ..]: each part with `value` behind it."""
    if all(len(part) == len(parts[0]) for part in parts):
        return torch.stack(parts)
    result = parts[0].new_full((len(parts), max(map(len, parts)), *parts[0].shape[1:]), value)
    for row, part in zip(result, parts, strict=True):
        row[: len(part)] = part
    return result

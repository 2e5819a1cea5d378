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
from ..cohort import ClientTask
from ..errors import Interrupted
from .extended_step import ExtendedStep
from .samples import LocalSamples
from .stacked_model import StackedModel
from .step_terms import stacked_terms, step_terms
from .teacher import PADDING
from .trainer import LocalRun, Trainer


@dataclass(frozen=True)
class StackedRun:
    ends: Tensor  # [K, P] where training ended: the stack's own vectors
    losses: Tensor  # [K, steps]
    active: Tensor  # [K, steps] who had a batch
    samples: list[int]  # [K] that training went through, epochs counted
    duals: Tensor | None = None  # [K, P] of the method's perturbations

    def client(self, k: int) -> LocalRun:
        dual = None if self.duals is None else self.duals[k]
        return LocalRun(self.ends[k], self.losses[k, self.active[k]], self.samples[k], dual)


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
        corrections = [trainer.experiment.method.correction(server, client) for client in clients]
        decay = [config.optimizer.weight_decay + correction.decay for correction in corrections]
        decays = send(torch.tensor(decay, dtype=torch.float64), like.device)  # [K]
        self._step.begin(_stacked(corrections, stack.vector), decays)
        if isinstance(self._step, ExtendedStep):
            terms = [step_terms(trainer.experiment, server, client, like) for client in clients]
            self._step.extend(stacked_terms(terms, stack.vector))
        self._samples = [LocalSamples(config, data, server.round, task.client, like) for task in tasks]
        self._targets = _padded([samples.targets for samples in self._samples], PADDING)  # [K, N]
        self._sizes = np.array([len(samples) for samples in self._samples])
        self._epochs = np.array([task.epochs for task in tasks])

    def train(self) -> StackedRun:
        trainer, config, lr = self._trainer, self._trainer.experiment.config, self._server.lr
        teacher, cached = trainer.teacher(self._server) if trainer.distils else None, config.teacher != "recompute"
        if teacher is not None:
            trainer.model.vector.copy_(teacher)  # the common one: a pass over all clients' samples, padding included
        active = self._active()  # [E, batches, K]
        rates = None if active.all() else send(torch.from_numpy(active * lr), self._targets.device)
        order = self._order()  # [E, K, N]
        positions = order + torch.arange(len(self._stack), device=order.device).unsqueeze(1) * order.shape[2]
        labels = self._targets.take(positions)
        inputs = _padded([samples.inputs for samples in self._samples])  # [K, N, ..]
        if teacher is not None and cached:
            trainer.set_teachers(self._step, inputs, self._targets)
        self._stack.vector.copy_(self._server.model)
        if "start" in trainer.experiment.hooks:
            for row, client in zip(self._stack.vector, self._clients, strict=True):
                row.copy_(trainer.start(self._server, client))
        losses: list[Tensor] = []  # [K] each
        for epoch in range(len(order)):
            if self._samples[0].changing:
                pairs = zip(self._samples, self._epochs, strict=True)
                inputs = _padded([s.view() if epoch < epochs else s.inputs for s, epochs in pairs])
            if teacher is not None and not cached:
                trainer.set_teachers(self._step, inputs, self._targets)
            x = inputs.flatten(0, 1).index_select(0, positions[epoch].flatten()).view_as(inputs)
            parts = [part.split(config.batch_size, 1) for part in (x, labels[epoch], order[epoch])]
            for x, y, rows, rate in zip(*parts, [lr] * active.shape[1] if rates is None else rates[epoch], strict=True):
                if trainer.stop():
                    raise Interrupted("stopped")
                losses.append(self._step.run(x, y, rows, rate))
        mask = send(torch.from_numpy(active), self._targets.device).flatten(0, 1).T
        samples = (self._epochs * self._sizes).tolist()
        return StackedRun(self._stack.vector, torch.stack(losses, 1), mask, samples, self._duals())

    def _duals(self) -> Tensor | None:
        perturbation = self._step.terms.perturbation if isinstance(self._step, ExtendedStep) else None
        return None if perturbation is None else perturbation.dual

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


def _stacked(corrections: Sequence[Correction], like: Tensor) -> Correction:
    """One correction for K clients: a, rho and epsilon are the same for all, v is [K, P]."""
    last = corrections[-1]
    if any(
        (one.quadratic, one.rho, one.rho_epsilon) != (last.quadratic, last.rho, last.rho_epsilon) for one in corrections
    ):
        raise ValueError(
            "corrections with different quadratic, rho or rho_epsilon cannot be stacked"
        )  # one by one, then
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

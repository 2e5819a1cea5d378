"""The training of K clients at once.

The smaller ones are padded: a missing sample has the label ignore_index, and a client that has no batch in a step has
the learning rate 0, so it stays as it is.  Each client sees the batches that it would see alone, and each has a norm, a
loss and a teacher's share of its own.  What the steps of a client are is known before the first one: orders and rates
are laid out for all of them at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...algorithms import Client, Server
from ...data.host_to_device import send
from ...loss.functional import asd_loss_and_grad
from ...loss.teacher_cache import TeacherCache
from ..cohort import Task, Workplace
from ..errors import Interrupted
from . import fused_update
from .samples import LocalSamples
from .stacked_model import StackedModel
from .trainer import LocalRun

_PADDING = -100  # ignore_index of the loss


@dataclass(frozen=True)
class GroupRun:
    ends: Tensor  # [K, P] where training ended: the stack's own vectors
    losses: Tensor  # [K, steps]
    active: Tensor  # [K, steps] who had a batch
    samples: list[int]  # [K] that training went through, epochs counted

    def client(self, k: int) -> LocalRun:
        return LocalRun(self.ends[k], self.losses[k, self.active[k]], self.samples[k])


class GroupTraining:
    def __init__(
        self,
        place: Workplace,
        stack: StackedModel,
        server: Server,
        tasks: Sequence[Task],
        clients: Sequence[Client],
    ) -> None:
        self._place, self._stack, self._server = place, stack, server
        config, like, term = place.config, place.initial, place.trainer.distillation
        self._options = term.options() if term else {}
        self._linear: Tensor | None = None  # [K, P]
        decay = []
        for k, client in enumerate(clients):
            self._correction = place.method.correction(server, client)  # a, rho and epsilon are the same for all
            decay.append(config.optimizer.weight_decay + self._correction.decay)
            if self._correction.linear is not None:
                self._linear = torch.empty_like(stack.vectors) if self._linear is None else self._linear
                self._linear[k] = self._correction.linear
        self._decay = send(torch.tensor(decay, dtype=torch.float64), like.device)  # [K]
        self._velocity = torch.zeros_like(stack.vectors) if config.optimizer.momentum else None
        self._samples = [LocalSamples(config, place.data, server.round, task.client, like) for task in tasks]
        self._targets = _padded([samples.targets for samples in self._samples], _PADDING)  # [K, N]
        self._sizes = np.array([len(samples) for samples in self._samples])
        self._epochs = np.array([task.epochs for task in tasks])

    def train(self) -> GroupRun:
        place, config, lr = self._place, self._place.config, self._server.lr
        distils, cached = place.trainer.distillation is not None, config.teacher != "recompute"
        active = self._active()  # [E, batches, K]
        rates = None if active.all() else send(torch.from_numpy(active * lr), self._targets.device)
        order = self._order()  # [E, K, N]
        places = order + torch.arange(len(self._stack), device=order.device).unsqueeze(1) * order.shape[2]
        labels = self._targets.take(places)
        inputs = _padded([samples.inputs for samples in self._samples])  # [K, N, ..]
        teacher = self._teach(inputs) if distils and cached else None
        self._stack.vectors.copy_(self._server.model)
        losses: list[Tensor] = []  # [K] each
        for epoch in range(len(order)):
            if self._samples[0].changing:
                pairs = zip(self._samples, self._epochs, strict=True)
                inputs = _padded([s.view() if epoch < epochs else s.inputs for s, epochs in pairs])
            if distils and not cached:
                teacher = self._teach(inputs)
            x = inputs.flatten(0, 1).index_select(0, places[epoch].flatten()).view_as(inputs)
            parts = [part.split(config.batch_size, 1) for part in (x, labels[epoch], order[epoch])]
            for x, y, rows, rate in zip(*parts, [lr] * active.shape[1] if rates is None else rates[epoch], strict=True):
                if place.trainer.stopping():
                    raise Interrupted("stopped")
                losses.append(self._step(x, y, teacher, rows, rate))
        mask = send(torch.from_numpy(active), self._targets.device).flatten(0, 1).T
        return GroupRun(self._stack.vectors, torch.stack(losses, 1), mask, (self._epochs * self._sizes).tolist())

    def _active(self) -> np.ndarray:
        """[E, batches, K]: who has a batch."""
        epochs = np.arange(self._epochs.max())[:, None, None]
        starts = np.arange(0, self._sizes.max(), self._place.config.batch_size)[:, None]
        active: np.ndarray = (epochs < self._epochs) & (starts < self._sizes)
        return active

    def _order(self) -> Tensor:
        """The samples of all epochs in their order, [E, K, N]; padding stays behind them."""
        epochs, (clients, longest) = self._epochs.max(), self._targets.shape
        order = np.tile(np.arange(longest), (epochs, clients, 1))
        for k, samples in enumerate(self._samples):
            samples.shuffle(order[: self._epochs[k], k, : self._sizes[k]])
        return send(torch.from_numpy(order), self._targets.device)

    def _step(self, x: Tensor, y: Tensor, teacher: TeacherCache | None, rows: Tensor, lr: float | Tensor) -> Tensor:
        w, g, optimizer = self._stack.vectors, self._stack.gradients, self._place.config.optimizer
        loss = self._backward(x, y, teacher, rows)
        if self._correction.rho:
            saved = fused_update.ascend(w, g, self._correction)
            self._backward(x, y, teacher, rows)
            w.copy_(saved)
        fused_update.local_step(
            w, g, lr, quadratic=self._correction.quadratic, linear=self._linear, clip_norm=optimizer.clip_norm,
            decay=self._decay, velocity=self._velocity, momentum=optimizer.momentum,
        )  # fmt: skip
        return loss

    def _backward(self, x: Tensor, y: Tensor, teacher: TeacherCache | None, rows: Tensor) -> Tensor:
        """The clients' losses [K]; their gradients are left in the stack."""
        term = self._place.trainer.distillation
        logits = self._stack.network.forward(x)
        if teacher is None or term is None:  # cross-entropy alone: a distillation from itself, of weight 0
            loss, gradient = asd_loss_and_grad(logits, logits, y, None, 0.0, weighting="uniform")
        else:
            loss, gradient = asd_loss_and_grad(logits, teacher[rows], y, None, term.weight, **self._options)
        self._stack.network.backward(gradient)
        return loss

    def _teach(self, inputs: Tensor) -> TeacherCache:
        """One pass of the common teacher over all clients' samples, padding included."""
        term, model = self._place.trainer.distillation, self._place.trainer.model
        assert term is not None
        clients, classes, dtype = len(self._targets), self._place.data.num_classes, model.vector.dtype
        labels = self._targets.where(self._targets != _PADDING, classes)
        # As label_shares does for one: a bincount would make the host of a GPU wait.
        counts = torch.zeros(clients, classes + 1, dtype=dtype, device=labels.device)
        counts.scatter_add_(1, labels, torch.ones_like(labels, dtype=dtype))
        shares = counts[:, :classes] / send(torch.from_numpy(self._sizes), labels.device).to(dtype).unsqueeze(1)
        return TeacherCache.build(model.module, inputs, self._targets, shares, dtype=dtype, **term.teacher_options())


def _padded(parts: list[Tensor], value: int = 0) -> Tensor:
    """[K, N, ..]: each part with `value` behind it."""
    if all(len(part) == len(parts[0]) for part in parts):
        return torch.stack(parts)
    result = parts[0].new_full((len(parts), max(map(len, parts)), *parts[0].shape[1:]), value)
    for row, part in zip(result, parts, strict=True):
        row[: len(part)] = part
    return result

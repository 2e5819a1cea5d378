"""The local step: forward, loss and its gradient, backward, ascent, update; of one client, or of K stacked ones.

What is the same in all steps of a client is set before them (`begin`, `set_teacher`); a step then takes a batch only.
Every number that differs between clients may lie in a tensor, so that the same code serves stacked clients, and can be
recorded once as a CUDA graph (cuda_graph.py).
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ...algorithms import Correction
from ...config import Config
from ...loss.functional import asd_loss_and_grad
from ...loss.teacher_cache import TeacherCache
from . import adamw, fused_update


class TrainableModel(Protocol):
    """Parameters and gradients of one client [P], or of K stacked clients [K, P]."""

    vector: Tensor
    gradient: Tensor

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits [B, C], or [K, B, C] from inputs [K, B, ..]; of sequences, every position has a row: [B T, C]."""

    def backward(self, gradient: Tensor) -> None:
        """From the gradient of the last logits, which may be overwritten, to those of the parameters."""


class LocalStep:
    correction: Correction
    decay: float | Tensor  # of optimizer and correction together; float64 [K] for K clients
    velocity: Tensor | None
    moments: adamw.Moments | None = None
    teacher: TeacherCache | None
    loss_scale: float | None = None
    skipped: Tensor | None = None  # int64 [], or [K]: steps of these clients whose gradient overflowed in float16

    def __init__(self, config: Config, model: TrainableModel) -> None:
        self.model, self.optimizer, self.distillation = model, config.optimizer, config.distillation
        self.half, self._sequences = config.precision != "float32", False
        self._options = self.distillation.options() if self.distillation else {}

    def begin(
        self, correction: Correction, decay: float | Tensor | None = None, loss_scale: float | None = None
    ) -> None:
        """The steps to come are those of other clients.  For K of them, `correction.linear` is [K, P] and `decay` the
        sum of the optimizer's and each correction's.  With a loss scale, steps whose gradient overflows are skipped."""
        self.correction, self.teacher = correction, None
        self.decay = self.optimizer.weight_decay + correction.decay if decay is None else decay
        self.velocity = torch.zeros_like(self.model.vector) if self.optimizer.momentum else None
        self.moments = adamw.Moments.zeros_like(self.model.vector) if self.optimizer.name == "adamw" else None
        self.loss_scale = loss_scale
        self.skipped = None if loss_scale is None else self._count()

    def set_teacher(self, teacher: TeacherCache) -> None:
        self.teacher = teacher

    def run(self, x: Tensor, y: Tensor, rows: Tensor, lr: float | Tensor) -> Tensor:
        """One step on a batch and its rows in the teacher's cache; returns the loss, or losses [K].

        With lr float64 [K], a client whose lr is 0 has no batch in this step and stays as it is.
        """
        self._sequences = y.dim() > rows.dim()
        if self._sequences:  # each position is a row, in the loss and in the cache
            length = y.shape[-1]
            rows = (rows.unsqueeze(-1) * length + torch.arange(length, device=rows.device)).flatten(-2)
            y = y.flatten(-2)
        return self._step(x, y, rows, lr)

    def _step(self, x: Tensor, y: Tensor, rows: Tensor, lr: float | Tensor) -> Tensor:
        w, g = self.model.vector, self.model.gradient
        loss = self._backward(x, y, rows)
        if self.correction.rho:
            start = fused_update.ascend(w, g, self.correction)
            self._backward(x, y, rows)
            w.copy_(start)
        if self.skipped is not None:
            lr = self._rate_unless_overflowed(g, lr, self.skipped)
        self._update(lr)
        return loss

    def _update(self, lr: float | Tensor) -> None:
        w, g = self.model.vector, self.model.gradient
        if self.moments is None:
            fused_update.step(w, g, self.velocity, self.correction, self.optimizer, lr, decay=self.decay)
        else:
            adamw.step(w, g, self.moments, self.correction, self.optimizer, lr, self.decay)

    def _count(self) -> Tensor:
        """Zeros, one for each client."""
        w = self.model.vector
        return torch.zeros(w.shape[:-1], dtype=torch.int64, device=w.device)

    @staticmethod
    def _rate_unless_overflowed(g: Tensor, lr: float | Tensor, skipped: Tensor) -> Tensor:
        """lr as float64 [] or [K], 0 where the gradient is not finite: such a client stays as it is, and the host need
        not wait to know.  An overflow of the ascent's gradient is in the second one too."""
        finite = g.sum(-1).isfinite()
        rate = finite.double() * lr
        skipped.add_((rate != lr).long())
        return rate

    def _backward(self, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        """The loss; its gradient is left in model.gradient."""
        logits = self.model.forward(x)
        if self.teacher is None and logits.requires_grad and not self.half and not self._sequences:
            # One client, whose bits have always been torch's own; of half logits, torch's loss would have three digits,
            # and of a batch whose positions are all ignored it would be 0 / 0.
            loss = F.cross_entropy(logits, y)
            loss.backward()
            return loss.detach()
        clients = 0 if logits.dim() == 3 else None
        scale = 1.0 if self.loss_scale is None else self.loss_scale
        if self.teacher is None:
            loss, gradient = asd_loss_and_grad(logits, None, y, None, 0.0, scale, client_dim=clients)
        else:
            assert self.distillation is not None
            weight = self.distillation.weight * scale
            loss, gradient = asd_loss_and_grad(
                logits, self.teacher[rows], y, None, weight, scale, client_dim=clients, **self._options
            )
        self.model.backward(gradient)
        if self.loss_scale is None:
            return loss
        self.model.gradient.div_(scale)
        return loss / scale

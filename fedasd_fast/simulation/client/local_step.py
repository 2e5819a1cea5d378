"""The local step: forward, loss and its gradient, backward, update.

What is the same in all steps of a client is set before them (`begin`, `teach`); a step then takes a batch only.  Every
number that differs between clients may lie in a tensor, so that the same code can be recorded once (captured.py).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ...algorithms import Correction
from ...config import Config
from ...loss.functional import asd_loss_and_grad
from ...loss.teacher_cache import TeacherCache
from . import fused_update
from .flat_model import FlatModel


class Steps:
    correction: Correction
    lr: float | Tensor
    velocity: Tensor | None
    teacher: TeacherCache | None
    decay: Tensor | None = None  # of optimizer and correction together, where these numbers lie in memory

    def __init__(self, config: Config, model: FlatModel) -> None:
        self.model, self.optimizer, self.distillation = model, config.optimizer, config.distillation
        self._options = self.distillation.options() if self.distillation else {}

    def begin(self, correction: Correction, lr: float) -> None:
        """The steps to come are those of another client."""
        self.correction, self.lr, self.teacher = correction, lr, None
        self.velocity = torch.zeros_like(self.model.vector) if self.optimizer.momentum else None

    def teach(self, teacher: TeacherCache) -> None:
        self.teacher = teacher

    def run(self, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        """One step, on a batch and its rows in the teacher's cache; returns the loss."""
        return self._step(x, y, rows)

    def _step(self, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        w, g = self.model.vector, self.model.gradient
        loss = self._backward(x, y, rows)
        if self.correction.rho:
            start = fused_update.ascend(w, g, self.correction)
            self._backward(x, y, rows)
            w.copy_(start)
        fused_update.step(w, g, self.velocity, self.correction, self.optimizer, self.lr, decay=self.decay)
        return loss

    def _backward(self, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        """The loss; its gradient is left in model.gradient."""
        self.model.gradient.zero_()
        logits = self.model.module(x)
        if self.teacher is None:
            loss = F.cross_entropy(logits, y)
            loss.backward()
            return loss.detach()
        assert self.distillation is not None
        teacher, weight = self.teacher[rows], self.distillation.weight
        loss, gradient = asd_loss_and_grad(logits, teacher, y, None, weight, **self._options)
        logits.backward(gradient)
        return loss

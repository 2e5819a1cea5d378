"""The local step of methods that say more than a, v, decay and rho: a factor on the gradient, where it is taken, what
is ascended, logits that are changed before the cross-entropy, a term of the loss with autograd.

Methods that say nothing of the kind take the step of local_step.py.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...algorithms import Correction, LogitChange, Perturbation
from ...config import Config
from ...loss.functional import asd_loss_and_grad
from ...loss.teacher_cache import TeacherCache
from . import fused_update
from .local_step import LocalStep, TrainableModel
from .step_terms import StepTerms


class ExtendedStep(LocalStep):
    terms: StepTerms
    ascent_teacher: TeacherCache | None

    def __init__(self, config: Config, model: TrainableModel) -> None:
        super().__init__(config, model)
        self.ascent = config.ascent_loss
        self._ascent_options = self.ascent.options() if self.ascent else {}

    def begin(
        self, correction: Correction, decay: float | Tensor | None = None, loss_scale: float | None = None
    ) -> None:
        super().begin(correction, decay, loss_scale)
        self.terms, self.ascent_teacher = StepTerms(), None

    def extend(self, terms: StepTerms) -> None:
        """After `begin`."""
        if terms.perturbation is not None and self.correction.rho:
            raise ValueError(
                f"the method has a perturbation and a correction with rho = {self.correction.rho}; return one of them"
            )
        self.terms = terms

    def set_ascent_teacher(self, teacher: TeacherCache) -> None:
        self.ascent_teacher = teacher

    def _step(self, x: Tensor, y: Tensor, rows: Tensor, lr: float | Tensor) -> Tensor:
        loss = self._gradient(x, y, rows, lr)
        if isinstance(self.terms.factor, Tensor) or self.terms.factor != 1.0:
            self.model.gradient.mul_(self.terms.factor)
        self._update(lr)
        return loss

    def _gradient(self, x: Tensor, y: Tensor, rows: Tensor, lr: float | Tensor) -> Tensor:
        """The loss; the gradient for the descent is left in model.gradient, and w is as it was."""
        w, g, perturbation = self.model.vector, self.model.gradient, self.terms.perturbation
        if perturbation is not None and perturbation.fixed is not None:
            start = w.clone()
            w.add_(perturbation.fixed)
            loss = self._backward(x, y, rows)
        elif perturbation is not None:
            loss = self._backward(x, y, rows)
            start = w.clone()
            _ascend_by_dual(w, g, perturbation, lr)
            self._backward(x, y, rows)
        elif self.correction.rho and self.ascent is None:
            loss = self._backward(x, y, rows)
            start = fused_update.ascend(w, g, self.correction)
            self._backward(x, y, rows)
        elif self.correction.rho and self.ascent_teacher is not None:
            self._ascent_backward(x, y, rows)
            start = fused_update.ascend(w, g, self.correction)
            loss = self._backward(x, y, rows)
        else:
            return self._backward(x, y, rows)
        w.copy_(start)
        return loss

    def _ascent_backward(self, x: Tensor, y: Tensor, rows: Tensor) -> None:
        assert self.ascent is not None
        assert self.ascent_teacher is not None
        logits = self.model.forward(x)
        weight, options = self.ascent.weight, {"client_dim": _client_dim(logits), **self._ascent_options}
        _, gradient = asd_loss_and_grad(logits, self.ascent_teacher[rows], y, None, weight, 0.0, **options)
        self.model.backward(gradient)

    def _backward(self, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        change, local_loss = self.terms.logits, self.terms.local_loss
        if change is None and local_loss is None:
            return super()._backward(x, y, rows)
        logits = self.model.forward(x)
        loss, gradient = _changed_cross_entropy(logits, y, change or LogitChange())
        if self.teacher is not None:
            assert self.distillation is not None
            weight, options = self.distillation.weight, {"client_dim": _client_dim(logits), **self._options}
            term, more = asd_loss_and_grad(logits, self.teacher[rows], y, None, weight, 0.0, **options)
            loss, gradient = loss + term, gradient + more
        gradient = gradient.to(logits.dtype)  # changed logits are float32 in half precision too
        if local_loss is None:
            self.model.backward(gradient)
            return loss
        with torch.enable_grad():
            own = local_loss(x, y, logits)
        torch.autograd.backward((logits, own), (gradient, None))
        return loss + own.detach()


def _client_dim(logits: Tensor) -> int | None:
    return 0 if logits.dim() == 3 else None


def _changed_cross_entropy(logits: Tensor, y: Tensor, change: LogitChange) -> tuple[Tensor, Tensor]:
    """Of scale * logits + shift, and its gradient with respect to the logits."""
    z = logits.detach()
    if change.scale is not None:
        z = z * change.scale
    if change.shift is not None:
        z = z + change.shift
    loss, gradient = asd_loss_and_grad(z, None, y, None, asd_weight=0.0, client_dim=_client_dim(z))
    return loss, gradient if change.scale is None else gradient * change.scale


def _ascend_by_dual(w: Tensor, g: Tensor, perturbation: Perturbation, lr: float | Tensor) -> None:
    """w <- w + e and mu <- mu + e - s; the dual vector of a client that has no batch in this step stays."""
    mu, s = perturbation.dual, perturbation.common
    assert mu is not None
    assert s is not None
    u = g - mu - s
    norm = torch.linalg.vector_norm(u, dim=-1, keepdim=True)
    e = u.mul_(perturbation.rho / (norm + perturbation.epsilon))
    w.add_(e)
    change = e - s
    if isinstance(lr, Tensor):
        change.mul_((lr != 0).to(change.dtype).unsqueeze(-1))
    mu.add_(change)

"""The implementations of the loss that are compared: functions without arguments that return (loss, gradient)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

import fedasd_fast as fa

from .cases import ASD_WEIGHT, TEMPERATURE, Case, client_dim

Call = Callable[[], tuple[Tensor, Tensor] | None]


def minimal_objective(z: Tensor, t: Tensor, y: Tensor, p: Tensor) -> Tensor:
    """What one would write by hand: no options, no ignored rows, no checks."""
    log_h = F.log_softmax(t, -1)
    alpha = F.softmax((log_h.exp() * log_h).sum(-1) - p.log().gather(-1, y), -1)
    log_q, log_s = F.log_softmax(z / TEMPERATURE, -1), F.log_softmax(t / TEMPERATURE, -1)
    kl = F.kl_div(log_q, log_s, reduction="none", log_target=True).sum(-1)
    if z.dim() == 2:
        return F.cross_entropy(z, y) + ASD_WEIGHT * (alpha * kl).sum()
    ce = F.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="none").view_as(y).mean(-1)
    return ce + ASD_WEIGHT * (alpha * kl).sum(-1)


def _reference(z: Tensor, t: Tensor, y: Tensor, p: Tensor) -> Tensor:
    return fa.reference.asd_objective(z, t, y, p, ASD_WEIGHT, temperature=TEMPERATURE, client_dim=client_dim(z))


def _fused(z: Tensor, t: Tensor, y: Tensor, p: Tensor) -> Tensor:
    return fa.asd_objective(
        z, t, y, p, ASD_WEIGHT, temperature=TEMPERATURE, implementation="fused", client_dim=client_dim(z)
    )


def through_autograd(objective: Callable[..., Tensor], case: Case) -> Call:
    student = case.student.clone().requires_grad_()

    def call() -> tuple[Tensor, Tensor]:
        loss = objective(student, case.teacher, case.targets, case.prior)
        (loss.sum() if loss.dim() else loss).backward()
        gradient, student.grad = student.grad, None  # the next call must not add to it, nor find it in memory
        assert gradient is not None
        return loss.detach(), gradient

    return call


def _eager(case: Case) -> Call:
    return through_autograd(_reference, case)


def _eager_minimal(case: Case) -> Call:
    return through_autograd(minimal_objective, case)


def _compiled(case: Case) -> Call:
    # Static shapes give the fastest code; the reset keeps the next shape from counting as a recompilation.
    torch._dynamo.reset()
    return through_autograd(torch.compile(_reference, dynamic=False), case)


def _fused_autograd(case: Case) -> Call:
    return through_autograd(_fused, case)


def _loss_and_grad(case: Case) -> Call:
    return lambda: fa.asd_loss_and_grad(
        case.student,
        case.teacher,
        case.targets,
        case.prior,
        ASD_WEIGHT,
        temperature=TEMPERATURE,
        implementation="fused",
        client_dim=client_dim(case.student),
    )


def _loss_and_grad_cached(case: Case) -> Call:
    return lambda: fa.asd_loss_and_grad(
        case.student,
        case.cache[case.rows],
        case.targets,
        None,
        ASD_WEIGHT,
        temperature=TEMPERATURE,
        implementation="fused",
        client_dim=client_dim(case.student),
    )


def _copy(case: Case) -> Call:
    source = torch.stack([case.student, case.teacher, case.student])
    target = torch.empty_like(source)

    def call() -> None:
        target.copy_(source)

    return call


IMPLEMENTATIONS: dict[str, Callable[[Case], Call]] = {
    "eager": _eager,
    "eager_minimal": _eager_minimal,
    "compiled": _compiled,
    "fused_autograd": _fused_autograd,
    "loss_and_grad": _loss_and_grad,
    "loss_and_grad_cached": _loss_and_grad_cached,
    "copy": _copy,
}

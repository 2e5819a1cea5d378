"""The public loss functions: the fused op where the device has one, else the reference."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..kernels import loader
from ..kernels.checks import check_logits
from . import reference
from .cached_teacher import TeacherRows
from .options import ASDOptions, TeacherKey


def _fused(implementation: str, student_logits: Tensor) -> bool:
    if not isinstance(student_logits, Tensor):
        raise TypeError(f"student_logits is a {type(student_logits).__name__}; expected a torch.Tensor")
    return loader.use_fused(implementation, student_logits)


def _teacher(teacher: Tensor | TeacherRows | None, prior: Tensor | None, key: TeacherKey) -> tuple[Any, ...]:
    """teacher, label_prior, rows, cache_targets, cache_constant, cache_log_weight, log_rows of the ops."""
    if not isinstance(teacher, TeacherRows):
        return teacher, prior, None, None, None, None, False
    cache = teacher.cache
    cache.check_built_for(key, prior)
    return cache.rows, None, teacher.rows, cache.targets, cache.constant, cache.log_weight, cache.log_rows


def asd_loss(
    student_logits: Tensor,
    teacher_logits: Tensor | TeacherRows,
    targets: Tensor,
    label_prior: Tensor | None,
    *,
    temperature: float = 2.0,
    entropy_temperature: float = 1.0,
    entropy_power: float = 1.0,
    prior_power: float = 1.0,
    weighting: str = "adaptive",
    divergence: str = "kl",
    not_true: bool = False,
    ignore_index: int = -100,
    implementation: str = "auto",
) -> Tensor:
    """sum_i alpha_i D(teacher_i || student_i): the distillation term alone.

    student_logits [B, C] or [K, B, C]; teacher_logits of the same shape, or cache[rows]; targets [B] or [K, B];
    label_prior [C] or [K, C] (None with a cache or uniform weights).  Returns a scalar, or [K].
    """
    return asd_objective(
        student_logits, teacher_logits, targets, label_prior, 1.0, ce_weight=0.0, temperature=temperature,
        entropy_temperature=entropy_temperature, entropy_power=entropy_power, prior_power=prior_power,
        weighting=weighting, divergence=divergence, not_true=not_true, ignore_index=ignore_index,
        implementation=implementation,
    )  # fmt: skip


def asd_objective(
    student_logits: Tensor,
    teacher_logits: Tensor | TeacherRows | None,
    targets: Tensor,
    label_prior: Tensor | None,
    asd_weight: float,
    *,
    ce_weight: float = 1.0,
    temperature: float = 2.0,
    entropy_temperature: float = 1.0,
    entropy_power: float = 1.0,
    prior_power: float = 1.0,
    weighting: str = "adaptive",
    divergence: str = "kl",
    not_true: bool = False,
    ignore_index: int = -100,
    implementation: str = "auto",
) -> Tensor:
    """ce_weight * cross-entropy + asd_weight * asd_loss, in one fused op.  Arguments and result as asd_loss.

    teacher_logits=None with asd_weight=0 is the cross-entropy alone; label_prior may then be None too.
    """
    if _fused(implementation, student_logits):
        key = (temperature, entropy_temperature, entropy_power, prior_power, not_true)
        teacher, *rest = _teacher(teacher_logits, label_prior, key)
        op = torch.ops.fedasd.asd_objective.default if torch.compiler.is_compiling() else loader.module.asd_objective
        return op(  # type: ignore[no-any-return]
            student_logits, teacher, targets, *rest, asd_weight, ce_weight, temperature, entropy_temperature,
            entropy_power, prior_power, weighting, divergence, not_true, ignore_index,
        )  # fmt: skip
    options = ASDOptions(
        temperature=temperature, entropy_temperature=entropy_temperature, entropy_power=entropy_power,
        prior_power=prior_power, weighting=weighting, divergence=divergence, not_true=not_true,
        ignore_index=ignore_index,
    )  # fmt: skip
    return reference.objective(student_logits, teacher_logits, targets, label_prior, asd_weight, ce_weight, options)


def asd_loss_and_grad(
    student_logits: Tensor,
    teacher_logits: Tensor | TeacherRows | None,
    targets: Tensor,
    label_prior: Tensor | None,
    asd_weight: float,
    ce_weight: float = 1.0,
    *,
    temperature: float = 2.0,
    entropy_temperature: float = 1.0,
    entropy_power: float = 1.0,
    prior_power: float = 1.0,
    weighting: str = "adaptive",
    divergence: str = "kl",
    not_true: bool = False,
    ignore_index: int = -100,
    implementation: str = "auto",
) -> tuple[Tensor, Tensor]:
    """The objective and its gradient with respect to student_logits, without an autograd graph.

    Continue with student_logits.backward(grad).  With a client dimension each client has its own loss and gradient.
    teacher_logits=None with asd_weight=0 is the cross-entropy alone, as in asd_objective.
    """
    if _fused(implementation, student_logits):
        key = (temperature, entropy_temperature, entropy_power, prior_power, not_true)
        teacher, *rest = _teacher(teacher_logits, label_prior, key)
        op = (
            torch.ops.fedasd.asd_loss_and_grad.default
            if torch.compiler.is_compiling()
            else loader.module.asd_loss_and_grad
        )
        return op(  # type: ignore[no-any-return]
            student_logits, teacher, targets, *rest, asd_weight, ce_weight, temperature, entropy_temperature,
            entropy_power, prior_power, weighting, divergence, not_true, ignore_index,
        )  # fmt: skip
    check_logits(student_logits, "student_logits")
    options = ASDOptions(
        temperature=temperature, entropy_temperature=entropy_temperature, entropy_power=entropy_power,
        prior_power=prior_power, weighting=weighting, divergence=divergence, not_true=not_true,
        ignore_index=ignore_index,
    )  # fmt: skip
    with torch.enable_grad():
        leaf = student_logits.detach().requires_grad_()
        loss = reference.objective(leaf, teacher_logits, targets, label_prior, asd_weight, ce_weight, options)
        (gradient,) = torch.autograd.grad(loss.sum(), leaf)
    return loss.detach(), gradient

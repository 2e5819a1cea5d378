"""The public loss functions: the fused op where the device has one, else the reference."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..kernels import loader
from ..kernels.checks import as_float, check_finite, check_logits
from ..kernels.client_dimension import check_dimensions
from . import reference
from .alpha import as_normalizer
from .cached_teacher import TeacherRows, check_kind
from .cross_entropy import check_cross_entropy, check_reduction, cross_entropy
from .options import ASDOptions, TeacherKey


def _fused(implementation: str, student_logits: Tensor, client_dim: int | None) -> bool:
    if not isinstance(student_logits, Tensor):
        raise TypeError(f"student_logits is a {type(student_logits).__name__}; expected a torch.Tensor")
    if client_dim is not None or student_logits.dim() != 2:
        check_dimensions(student_logits, "student_logits", client_dim)
    return loader.use_fused(implementation, student_logits)


def _teacher(teacher: Tensor | TeacherRows | None, prior: Tensor | None, key: TeacherKey) -> tuple[Any, ...]:
    """teacher, label_prior, rows, cache_targets, cache_constant, cache_log_weight of the ops, and log_rows."""
    if not isinstance(teacher, TeacherRows):
        check_kind(teacher)
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
    client_dim: int | None = None,
    alpha_normalizer: float | Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """sum_i alpha_i D(teacher_i || student_i): the distillation term alone.

    student_logits [B, C]; teacher_logits of the same shape, or cache[rows]; targets [B]; label_prior [C] (None with a
    cache or uniform weights).  Returns a scalar.  With client_dim=0 everything has a dimension of clients before these,
    [K, B, C] and so on, each client is normalised on its own, and the result is [K].  Positions of one batch, as the
    [B, T, C] of a language model, are flattened instead: student_logits.flatten(0, -2), targets.flatten().

    - `temperature` (tau) of both softmaxes in D; `entropy_temperature` of the one whose entropy weights a sample.
    - `entropy_power`, `prior_power`: how much a sure teacher and a rare label raise a sample's weight; 0: not at all.
    - `weighting`: "adaptive", or "uniform", where all samples of a batch count alike.
    - `divergence`: "kl" of the student from the teacher, "reverse_kl" or "js".
    - `not_true`: softmaxes over the classes other than the label (FedNTD).
    - `ignore_index`: rows with this label take part in nothing.
    - `implementation`: "fused", "reference", or "auto", the fused op where there is one.

    `alpha_normalizer`: alpha is normalised over the rows of this call.  If the call is a part of a batch (gradient
    accumulation, DDP), pass the number that `fa.alpha_normalizer` gives for the whole batch; then the mean over the
    parts is exactly the loss of the whole.  A number, or one for each client.

    `reduction="none"` gives the terms of the samples, [B] or [K, B], whose mean over the valid rows is the loss:
    D_i times the weight relative to the mean weight.  It is computed by the reference.
    """
    return asd_objective(
        student_logits, teacher_logits, targets, label_prior, 1.0, ce_weight=0.0, temperature=temperature,
        entropy_temperature=entropy_temperature, entropy_power=entropy_power, prior_power=prior_power,
        weighting=weighting, divergence=divergence, not_true=not_true, ignore_index=ignore_index,
        implementation=implementation, client_dim=client_dim, alpha_normalizer=alpha_normalizer, reduction=reduction,
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
    client_dim: int | None = None,
    alpha_normalizer: float | Tensor | None = None,
    label_smoothing: float = 0.0,
    class_weights: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """ce_weight * cross-entropy + asd_weight * asd_loss, in one fused op.  Arguments and result as asd_loss.

    teacher_logits=None with asd_weight=0 is the cross-entropy alone; label_prior may then be None too.

    label_smoothing and class_weights [C] change the cross-entropy as in torch.nn.functional.cross_entropy (there:
    `weight`).  It is then computed beside the fused ASD by plain PyTorch operations, which cost about as much as
    torch's own cross_entropy.  reduction="none" gives [B] or [K, B] by the reference, at the reference's speed: the
    terms of torch's cross_entropy, plus those of asd_loss.
    """
    fused = _fused(implementation, student_logits, client_dim)
    if type(label_smoothing) is not float:
        label_smoothing = as_float(label_smoothing, "label_smoothing")
    if fused and reduction == "mean":
        if label_smoothing != 0 or class_weights is not None:
            check_cross_entropy(student_logits, label_smoothing, class_weights)
            check_finite(ce_weight, "ce_weight")
            asd = asd_objective(
                student_logits, teacher_logits, targets, label_prior, asd_weight, ce_weight=0.0,
                temperature=temperature, entropy_temperature=entropy_temperature, entropy_power=entropy_power,
                prior_power=prior_power, weighting=weighting, divergence=divergence, not_true=not_true,
                ignore_index=ignore_index, client_dim=client_dim, alpha_normalizer=alpha_normalizer,
            )  # fmt: skip
            if ce_weight == 0:
                return asd
            return asd + ce_weight * cross_entropy(
                student_logits, targets, ignore_index, label_smoothing=label_smoothing, class_weights=class_weights
            )
        key = (temperature, entropy_temperature, entropy_power, prior_power, not_true)
        teacher, prior, rows, labels, constant, log_weight, log_rows = _teacher(teacher_logits, label_prior, key)
        normalizer = alpha_normalizer
        if normalizer is not None:
            normalizer = as_normalizer(normalizer, student_logits, weighting)
        op = torch.ops.fedasd.asd_objective.default if torch.compiler.is_compiling() else loader.module.asd_objective
        return op(  # type: ignore[no-any-return]
            student_logits, teacher, targets, prior, rows, labels, constant, log_weight, normalizer, log_rows,
            asd_weight, ce_weight, temperature, entropy_temperature, entropy_power, prior_power, weighting, divergence,
            not_true, ignore_index,
        )  # fmt: skip
    check_reduction(reduction)
    options = ASDOptions(
        temperature=temperature, entropy_temperature=entropy_temperature, entropy_power=entropy_power,
        prior_power=prior_power, weighting=weighting, divergence=divergence, not_true=not_true,
        ignore_index=ignore_index,
    )  # fmt: skip
    return reference.objective(
        student_logits, teacher_logits, targets, label_prior, asd_weight, ce_weight, options, client_dim=client_dim,
        alpha_normalizer=alpha_normalizer, label_smoothing=label_smoothing, class_weights=class_weights,
        reduction=reduction,
    )  # fmt: skip


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
    client_dim: int | None = None,
    alpha_normalizer: float | Tensor | None = None,
    label_smoothing: float = 0.0,
    class_weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The objective and its gradient with respect to student_logits, without an autograd graph.

    Continue with student_logits.backward(grad).  With client_dim=0 each client has its own loss and gradient.
    teacher_logits=None with asd_weight=0 is the cross-entropy alone; other arguments as in asd_objective.
    """
    if type(label_smoothing) is not float:
        label_smoothing = as_float(label_smoothing, "label_smoothing")
    if _fused(implementation, student_logits, client_dim) and label_smoothing == 0 and class_weights is None:
        key = (temperature, entropy_temperature, entropy_power, prior_power, not_true)
        teacher, prior, rows, labels, constant, log_weight, log_rows = _teacher(teacher_logits, label_prior, key)
        normalizer = alpha_normalizer
        if normalizer is not None:
            normalizer = as_normalizer(normalizer, student_logits, weighting)
        op = (
            torch.ops.fedasd.asd_loss_and_grad.default
            if torch.compiler.is_compiling()
            else loader.module.asd_loss_and_grad
        )
        return op(  # type: ignore[no-any-return]
            student_logits, teacher, targets, prior, rows, labels, constant, log_weight, normalizer, log_rows,
            asd_weight, ce_weight, temperature, entropy_temperature, entropy_power, prior_power, weighting, divergence,
            not_true, ignore_index,
        )  # fmt: skip
    check_logits(student_logits, "student_logits")
    with torch.enable_grad():
        leaf = student_logits.detach().requires_grad_()
        loss = asd_objective(
            leaf, teacher_logits, targets, label_prior, asd_weight, ce_weight=ce_weight, temperature=temperature,
            entropy_temperature=entropy_temperature, entropy_power=entropy_power, prior_power=prior_power,
            weighting=weighting, divergence=divergence, not_true=not_true, ignore_index=ignore_index,
            implementation=implementation, client_dim=client_dim, alpha_normalizer=alpha_normalizer,
            label_smoothing=label_smoothing, class_weights=class_weights,
        )  # fmt: skip
        (gradient,) = torch.autograd.grad(loss.sum(), leaf)
    return loss.detach(), gradient

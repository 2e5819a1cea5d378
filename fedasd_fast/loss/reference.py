"""Adaptive Self-Distillation in plain PyTorch: what to read to understand it, and what the kernels are tested against.

Equation numbers are those of the paper (Yashwanth et al., "Adaptive Self-Distillation for Minimizing Client Drift in
Heterogeneous Federated Learning", TMLR 2024).  Everything stays in log space, so no softmax that underflows can
turn a loss into NaN.  Works on any device and floating dtype, on [B, C] and [K, B, C], and can be differentiated twice.

Shapes: student and teacher logits [.., B, C], targets [.., B], label_prior [.., C]; losses [..].
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..kernels.checks import (
    FLOATS,
    check_finite,
    check_inputs,
    check_teacher,
    check_tensor,
    check_values,
    require,
    valid_rows,
)
from ..kernels.client_dimension import check_dimensions
from .alpha import as_normalizer, check_normalizer_value, entropy, log_weights, normalised_weights
from .cached_teacher import TeacherRows, check_kind
from .cross_entropy import check_cross_entropy, check_reduction, cross_entropy, sanitise
from .options import ASDOptions

__all__ = ["asd_loss", "asd_objective", "cross_entropy", "entropy", "log_weights", "normalised_weights"]


class Teacher(NamedTuple):
    """What ASD needs to know of the global model on a batch."""

    log_s: Tensor  # [.., B, C] log q_g at temperature tau (Eq. 6)
    s: Tensor  # [.., B, C] q_g itself
    log_weight: Tensor  # [.., B] log of the un-normalised weight (Eq. 10)
    s_log_s: Tensor | None = None  # [.., B] sum_c q_g log q_g of a cached row


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
    client_dim: int | None = None,
    alpha_normalizer: float | Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """sum_i alpha_i D(q_g(x_i) || q_k(x_i)), Eq. 5 with the weight lambda in units of the batch size.

    reduction="none": the terms whose mean over the valid rows is that sum.
    """
    options = ASDOptions(
        temperature=temperature, entropy_temperature=entropy_temperature, entropy_power=entropy_power,
        prior_power=prior_power, weighting=weighting, divergence=divergence, not_true=not_true,
        ignore_index=ignore_index,
    )  # fmt: skip
    return objective(
        student_logits, teacher_logits, targets, label_prior, 1.0, 0.0, options, client_dim=client_dim,
        alpha_normalizer=alpha_normalizer, reduction=reduction,
    )  # fmt: skip


def asd_objective(
    student_logits: Tensor,
    teacher_logits: Tensor | TeacherRows | None,
    targets: Tensor,
    label_prior: Tensor | None,
    asd_weight: float,
    *,
    ce_weight: float = 1.0,
    ignore_index: int = -100,
    temperature: float = 2.0,
    entropy_temperature: float = 1.0,
    entropy_power: float = 1.0,
    prior_power: float = 1.0,
    weighting: str = "adaptive",
    divergence: str = "kl",
    not_true: bool = False,
    client_dim: int | None = None,
    alpha_normalizer: float | Tensor | None = None,
    label_smoothing: float = 0.0,
    class_weights: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """f_k = L_k + lambda L_k^ASD, Eq. 2: cross-entropy plus the weighted distillation term.

    teacher_logits None, with lambda = 0: the cross-entropy alone.
    """
    options = ASDOptions(
        temperature=temperature, entropy_temperature=entropy_temperature, entropy_power=entropy_power,
        prior_power=prior_power, weighting=weighting, divergence=divergence, not_true=not_true,
        ignore_index=ignore_index,
    )  # fmt: skip
    return objective(
        student_logits, teacher_logits, targets, label_prior, asd_weight, ce_weight, options, client_dim=client_dim,
        alpha_normalizer=alpha_normalizer, label_smoothing=label_smoothing, class_weights=class_weights,
        reduction=reduction,
    )  # fmt: skip


def objective(
    student_logits: Tensor,
    teacher_logits: Tensor | TeacherRows | None,
    targets: Tensor,
    label_prior: Tensor | None,
    asd_weight: float,
    ce_weight: float,
    options: ASDOptions,
    *,
    client_dim: int | None = None,
    alpha_normalizer: float | Tensor | None = None,
    label_smoothing: float = 0.0,
    class_weights: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """asd_objective with the options of the distillation as one object."""
    check_finite(asd_weight, "asd_weight")
    check_finite(ce_weight, "ce_weight")
    check_reduction(reduction)
    _check(student_logits, teacher_logits, targets, label_prior, options, asd_weight, client_dim)
    smoothing = check_cross_entropy(student_logits, label_smoothing, class_weights)
    normalizer = None
    if alpha_normalizer is not None:
        normalizer = as_normalizer(alpha_normalizer, student_logits, options.weighting)
        check_normalizer_value(normalizer)
    # Terms of weight 0 are left out: 0 times an infinite divergence is NaN.
    terms = []
    if asd_weight != 0 and teacher_logits is not None:
        asd = _distillation(student_logits, teacher_logits, targets, label_prior, options, normalizer)  # [.., B]
        if reduction == "none":
            asd = asd * valid_rows(targets, options.ignore_index).sum(-1, keepdim=True)
        terms.append(asd_weight * (asd if reduction == "none" else asd.sum(-1)))
    if ce_weight != 0:
        ce = cross_entropy(
            student_logits, targets, options.ignore_index, label_smoothing=smoothing, class_weights=class_weights,
            reduction=reduction,
        )  # fmt: skip
        terms.append(ce_weight * ce)
    if terms:
        return sum(terms[1:], terms[0])
    # 0 for each client, with a gradient of 0 whatever the logits are.
    nothing = sanitise(student_logits, torch.zeros((), dtype=torch.bool, device=student_logits.device)).sum(-1)
    return nothing if reduction == "none" else nothing.sum(-1)


def _distillation(
    student_logits: Tensor,
    teacher_logits: Tensor | TeacherRows,
    targets: Tensor,
    label_prior: Tensor | None,
    options: ASDOptions,
    normalizer: Tensor | None,
) -> Tensor:
    """alpha_i D_i, row by row.  [.., B]"""
    prior = label_prior if options.weighting == "adaptive" else None
    valid = valid_rows(targets, options.ignore_index)  # [.., B]
    label = targets.long().where(valid, 0)
    z = sanitise(student_logits, valid)
    not_true = options.not_true and z.shape[-1] > 1  # one class has no other
    if isinstance(teacher_logits, TeacherRows):
        teacher = _cached_teacher(teacher_logits, valid, z.dtype)
    else:
        t = sanitise(teacher_logits, valid).to(z.dtype)
        teacher = _teacher(t, label, prior, options, not_true)

    alpha = normalised_weights(teacher.log_weight, valid, options.weighting, normalizer)  # [.., B]
    x = _without_true_class(z, label) if not_true else z
    return alpha * _divergence(x / options.temperature, teacher, options.divergence)


def _check(
    student_logits: Tensor,
    teacher_logits: Tensor | TeacherRows | None,
    targets: Tensor,
    label_prior: Tensor | None,
    options: ASDOptions,
    asd_weight: float,
    client_dim: int | None,
) -> None:
    check_kind(teacher_logits)
    check_tensor(student_logits, "student_logits")
    check_dimensions(student_logits, "student_logits", client_dim)
    if isinstance(teacher_logits, TeacherRows):
        cache, rows = teacher_logits.cache, teacher_logits.rows
        cache.check_memory()
        check_inputs(student_logits, cache.rows, rows, targets, label_prior, options.weighting, asd_weight)
        check_values(targets, None, student_logits.shape[-1], options.ignore_index)
        cache.check_built_for(options.teacher_key, label_prior)
        teacher_logits.check_values(targets, valid_rows(targets, options.ignore_index))
    else:
        check_inputs(student_logits, teacher_logits, None, targets, label_prior, options.weighting, asd_weight)
        weighted = options.weighting == "adaptive" and teacher_logits is not None
        check_values(targets, label_prior if weighted else None, student_logits.shape[-1], options.ignore_index)


def teacher_cache(
    teacher_logits: Tensor,
    targets: Tensor,
    label_prior: Tensor,
    options: ASDOptions,
    dtype: torch.dtype,
    log_rows: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The tensors of a TeacherCache: rows [.., N, C], sum s log s [.., N] and log weights [.., N]."""
    check_teacher(teacher_logits, targets, label_prior)
    check_values(targets, label_prior, teacher_logits.shape[-1], options.ignore_index)
    require(dtype in FLOATS, f"dtype = {dtype}; expected float32, float64, float16 or bfloat16")
    valid = valid_rows(targets, options.ignore_index)
    label = targets.long().where(valid, 0)
    t = sanitise(teacher_logits, valid)
    x = (_without_true_class(t, label) if options.not_true and t.shape[-1] > 1 else t) / options.temperature
    log_s = torch.log_softmax(x, -1)
    rows = (log_s if log_rows else log_s.exp()).to(dtype).masked_fill(~valid.unsqueeze(-1), 0)
    # From the rows as they are stored, see _divergence.
    shift = x.amax(-1, keepdim=True)
    constant = _expectation(rows.to(x.dtype), x - shift) - torch.logsumexp(x - shift, -1)
    if log_rows:
        constant = torch.zeros_like(constant)
    log_weight = _log_weights(t, label, label_prior, options)
    return rows, constant.double(), log_weight.double()


def _log_weights(teacher_logits: Tensor, label: Tensor, label_prior: Tensor, options: ASDOptions) -> Tensor:
    return log_weights(
        teacher_logits, label, label_prior, options.entropy_temperature, options.entropy_power, options.prior_power
    )


def _teacher(t: Tensor, label: Tensor, label_prior: Tensor | None, options: ASDOptions, not_true: bool) -> Teacher:
    """label_prior None: uniform weights."""
    log_s = torch.log_softmax((_without_true_class(t, label) if not_true else t) / options.temperature, -1)
    s = log_s.exp()
    log_weight = torch.zeros_like(s[..., 0]) if label_prior is None else _log_weights(t, label, label_prior, options)
    return Teacher(log_s, s, log_weight)


def _cached_teacher(view: TeacherRows, valid: Tensor, dtype: torch.dtype) -> Teacher:
    cache, rows = view.cache, view.rows.long().where(valid, 0)
    stored = cache.rows.gather(-2, rows.unsqueeze(-1).expand(*rows.shape, cache.rows.shape[-1])).to(dtype)
    log_weight = cache.log_weight.gather(-1, rows).to(dtype)
    log_s, s = (stored, stored.exp()) if cache.log_rows else (stored.log(), stored)
    # Ignored rows must not give 0 * inf.
    log_s, s = sanitise(log_s, valid), sanitise(s, valid)
    s_log_s = _expectation(s, log_s) if cache.log_rows else cache.constant.gather(-1, rows).to(dtype)
    return Teacher(log_s, s, log_weight, s_log_s.masked_fill(~valid, 0))


def _divergence(x: Tensor, teacher: Teacher, divergence: str) -> Tensor:
    """Row by row, from the student's logits at temperature, x = z / tau.  [.., B]"""
    log_q = torch.log_softmax(x, -1)  # Eq. 7
    q = log_q.exp()
    log_s, s = teacher.log_s, teacher.s
    if divergence == "kl":  # Eq. 8; with not_true Eq. 19
        if teacher.s_log_s is None:
            return _expectation(s, log_s, log_q)
        # A cached row may have been rounded to half precision and no longer sum to one: take the student's
        # normaliser out of the sum, as if it did, so that student == teacher still gives 0.
        shift = x.amax(-1, keepdim=True).detach()
        return teacher.s_log_s - _expectation(s, x - shift) + torch.logsumexp(x - shift, -1)
    if divergence == "reverse_kl":
        return _expectation(q, log_q, log_s)
    # Jensen-Shannon.  Classes that both exclude are taken out, for logaddexp(-inf, -inf) has no derivative.
    neither = (s == 0) & (q == 0)
    log_m = torch.logaddexp(log_s.masked_fill(neither, 0), log_q.masked_fill(neither, 0)) - math.log(2)
    return 0.5 * (_expectation(s, log_s, log_m) + _expectation(q, log_q, log_m))


def _expectation(p: Tensor, log_a: Tensor, log_b: Tensor | None = None) -> Tensor:
    """sum_c p_c (log a_c - log b_c), where classes with p = 0 count as nothing whatever their logarithm.  [.., B]"""
    difference = log_a if log_b is None else log_a - log_b
    return (p * difference.masked_fill(p == 0, 0)).sum(-1)


def _without_true_class(logits: Tensor, label: Tensor) -> Tensor:
    """FedNTD: the softmax then runs over the C - 1 classes c != y."""
    return logits.scatter(-1, label.unsqueeze(-1), -math.inf)

"""alpha: the adaptive weights of a batch's samples (Eq. 9 to 11), and their normaliser for batches that come in parts.

Shapes: logits [.., B, C], labels [.., B], label_prior [.., C]; log weights and alpha [.., B].
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..kernels.checks import (
    as_float,
    check_finite,
    check_integers,
    check_normalizer,
    check_teacher,
    check_values,
    readable,
    require,
    valid_rows,
)
from ..kernels.client_dimension import check_dimensions
from .cached_teacher import TeacherRows, check_kind
from .cross_entropy import sanitise


def entropy(logits: Tensor) -> Tensor:
    """H(softmax(logits)), Eq. 11."""
    log_h = torch.log_softmax(logits, -1)
    h = log_h.exp()
    return -(h * log_h.masked_fill(h == 0, 0)).sum(-1)


def log_weights(
    teacher_logits: Tensor,
    label: Tensor,
    label_prior: Tensor,
    entropy_temperature: float = 1.0,
    entropy_power: float = 1.0,
    prior_power: float = 1.0,
) -> Tensor:
    """log of Eq. 10: alpha_hat = exp(-H) / p[y], each factor with its power.  [.., B]"""
    prior = label_prior.to(teacher_logits.dtype)
    # Where values cannot be checked (compiled or captured code) a share of 0 counts as the smallest one there is.
    smallest = prior.masked_fill(~(prior > 0), math.inf).amin(-1, keepdim=True)
    share = torch.maximum(prior, smallest).gather(-1, label)
    return -entropy_power * entropy(teacher_logits / entropy_temperature) - prior_power * share.log()


def normalised_weights(
    log_weight: Tensor, valid: Tensor, weighting: str = "adaptive", normalizer: Tensor | None = None
) -> Tensor:
    """alpha, Eq. 9: weights that sum to one over the valid rows of the batch; uniform: all equal.

    With a normaliser [..], alpha_i = alpha_hat_i / (normalizer x valid rows): the batch's own mean weight is one.
    """
    if weighting == "uniform":
        log_weight = torch.zeros_like(log_weight)
    if normalizer is None:
        alpha = torch.softmax(log_weight.masked_fill(~valid, -math.inf), -1)
    else:
        relative = (log_weight.double() - normalizer.log().unsqueeze(-1)).exp()
        alpha = (relative / valid.sum(-1, keepdim=True).clamp_min(1)).to(log_weight.dtype)
    return alpha.masked_fill(~valid, 0)  # also turns the NaN of a batch without valid rows into 0


def alpha_normalizer(
    teacher_logits: Tensor | TeacherRows,
    targets: Tensor | None = None,
    label_prior: Tensor | None = None,
    *,
    entropy_temperature: float | None = None,
    entropy_power: float | None = None,
    prior_power: float | None = None,
    ignore_index: int = -100,
    client_dim: int | None = None,
    group: Any = None,
) -> Tensor:
    """The mean un-normalised weight of these samples: what `alpha_normalizer=` of the loss takes.

    alpha is normalised over the rows of a call.  A batch that is computed in parts (gradient accumulation) or on
    several ranks (DDP) is therefore weighted differently, unless every part gets the normaliser of the whole batch.
    With it the mean of the parts' losses, and of their gradients, is that of the whole batch, as for a mean
    cross-entropy; parts of unequal size are to be weighted by their number of valid rows, as there.

    From a cache: `alpha_normalizer(cache[rows])` with the rows of the whole batch, or cache[:] for one number for the
    whole client; `targets` is needed only if some rows are padding (ignore_index).  From teacher logits: with targets
    and label_prior.  The options are those of the loss (None: the cache's own, or 1).  `group`, a process group such as
    torch.distributed.group.WORLD, averages over the samples of all its ranks.  Returns float64: a scalar, or [K].
    """
    options = {
        name: None if value is None else as_float(value, name)
        for name, value in (
            ("entropy_temperature", entropy_temperature),
            ("entropy_power", entropy_power),
            ("prior_power", prior_power),
        )
    }
    check_kind(teacher_logits)
    require(teacher_logits is not None, "teacher_logits = None; pass the teacher's logits or cache[rows]")
    if isinstance(teacher_logits, TeacherRows):
        log_weight, valid = _cached_weights(teacher_logits, targets, options, ignore_index, client_dim)
    else:
        log_weight, valid = _raw_weights(teacher_logits, targets, label_prior, options, ignore_index, client_dim)
    total = log_weight.double().exp().masked_fill(~valid, 0).sum(-1)
    count = valid.sum(-1).double()
    if group is not None:
        both = torch.stack([total, count])
        torch.distributed.all_reduce(both, group=group)
        total, count = both
    return (total / count).masked_fill(count == 0, 1)  # without a sample any number will do


def _cached_weights(
    view: TeacherRows,
    targets: Tensor | None,
    options: dict[str, float | None],
    ignore_index: int,
    client_dim: int | None,
) -> tuple[Tensor, Tensor]:
    cache = view.cache
    check_dimensions(view.rows, "rows", client_dim, 1)
    for (name, given), built in zip(options.items(), cache.key[1:4], strict=True):
        require(
            given is None or given == built,
            f"{name} = {given}, but the teacher cache was built with {name} = {built}; leave it out",
        )
    if targets is None:
        samples = len(cache)
        inside = (view.rows >= 0) & (view.rows < samples)
        rows = view.rows.long().where(inside, 0)
        if rows.device.type == "cpu" and not inside.all():
            raise ValueError(f"rows: {view.rows[~inside][0].item()} is outside the teacher cache's [0, {samples})")
        return cache.log_weight.gather(-1, rows), inside & (cache.targets.gather(-1, rows) >= 0)
    check_integers(targets, "targets")
    require(
        targets.shape == view.rows.shape,
        f"targets has shape {tuple(targets.shape)}; expected {tuple(view.rows.shape)} (one label for each of the rows)",
    )
    valid = valid_rows(targets, ignore_index)
    view.check_values(targets, valid)
    return cache.log_weight.gather(-1, view.rows.long().where(valid, 0)), valid


def _raw_weights(
    teacher_logits: Tensor,
    targets: Tensor | None,
    label_prior: Tensor | None,
    options: dict[str, float | None],
    ignore_index: int,
    client_dim: int | None,
) -> tuple[Tensor, Tensor]:
    if targets is None or label_prior is None:
        raise ValueError("targets or label_prior is None; the weights of teacher logits need both")
    check_teacher(teacher_logits, targets, label_prior)
    check_dimensions(teacher_logits, "teacher_logits", client_dim)
    check_values(targets, label_prior, teacher_logits.shape[-1], ignore_index)
    powers = {name: 1.0 if value is None else value for name, value in options.items()}
    for name, value in powers.items():
        check_finite(value, name)
    tau = powers["entropy_temperature"]
    require(tau > 0, f"entropy_temperature = {tau}; expected a positive finite number")
    valid = valid_rows(targets, ignore_index)
    label = targets.long().where(valid, 0)
    return log_weights(sanitise(teacher_logits, valid), label, label_prior, **powers), valid


def as_normalizer(value: Any, student_logits: Tensor, weighting: str) -> Tensor:
    """What the ops take: float64 [..], one number for each client.  A number serves every client."""
    require(
        weighting != "uniform",
        "alpha_normalizer is given, but the weights of weighting='uniform' need none: leave it out",
    )
    if not isinstance(value, Tensor):
        number = as_float(value, "alpha_normalizer")
        normalizer = torch.full((), number, dtype=torch.float64, device=student_logits.device)
    else:
        normalizer = value.double() if value.is_floating_point() else value
    if normalizer.dim() == 0 and student_logits.dim() == 3:
        normalizer = normalizer.expand(student_logits.shape[0])
    check_normalizer(normalizer, student_logits)
    return normalizer


def check_normalizer_value(alpha_normalizer: Tensor) -> None:
    if not readable(alpha_normalizer):
        return
    bad = alpha_normalizer[~((alpha_normalizer > 0) & (alpha_normalizer < math.inf))]
    require(
        bad.numel() == 0,
        f"alpha_normalizer = {bad[:1].sum().item()}; expected a positive finite number: the mean weight, as "
        "alpha_normalizer(cache[rows]) gives",
    )

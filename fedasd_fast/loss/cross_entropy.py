"""Cross-entropy in plain PyTorch (Eq. 3), with the label smoothing and class weights of torch's cross_entropy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..kernels.checks import as_float, check_memory, check_tensor, require, valid_rows, wrong_type


def cross_entropy(
    student_logits: Tensor,
    targets: Tensor,
    ignore_index: int = -100,
    *,
    label_smoothing: float = 0.0,
    class_weights: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """L_k, Eq. 3: mean over the valid rows of -log u[y]; 0 where no row is valid.  [.., B, C] -> [..]

    reduction="none" gives the terms [.., B], 0 for ignored rows.  With class weights the mean is the weighted one.
    """
    valid = valid_rows(targets, ignore_index)
    label = targets.long().where(valid, 0)
    log_u = torch.log_softmax(sanitise(student_logits, valid), -1)
    weights = None if class_weights is None else class_weights.to(log_u.dtype)
    own = -log_u.gather(-1, label.unsqueeze(-1)).squeeze(-1)
    own = own if weights is None else weights[label] * own
    if label_smoothing != 0:
        every = -(log_u if weights is None else weights * log_u).mean(-1)
        own = (1 - label_smoothing) * own + label_smoothing * every
    own = own.masked_fill(~valid, 0)
    if reduction == "none":
        return own
    if weights is None:
        return own.sum(-1) / valid.sum(-1).clamp_min(1)
    total = weights[label].masked_fill(~valid, 0).sum(-1)
    return own.sum(-1) / total.masked_fill(total == 0, 1)


def check_cross_entropy(student_logits: Tensor, label_smoothing: Any, class_weights: Any) -> float:
    """Returns label_smoothing as a number."""
    smoothing = as_float(label_smoothing, "label_smoothing")
    require(0 <= smoothing <= 1, f"label_smoothing = {label_smoothing}; expected a number in [0, 1]")
    if class_weights is None:
        return smoothing
    check_tensor(class_weights, "class_weights")
    require(
        class_weights.is_floating_point(),
        f"class_weights has dtype {class_weights.dtype}; expected floating point: call .float()",
    )
    check_memory(class_weights, "class_weights")
    require(
        class_weights.shape == student_logits.shape[-1:],
        f"class_weights has shape {tuple(class_weights.shape)}; expected {tuple(student_logits.shape[-1:])} "
        "(one weight for each class)",
    )
    require(
        class_weights.device == student_logits.device,
        f"class_weights is on {class_weights.device} but student_logits is on {student_logits.device}; move both to "
        "one device",
    )
    return smoothing


def check_reduction(reduction: object) -> None:
    if not isinstance(reduction, str):
        raise wrong_type(reduction, "reduction", "a str")
    require(reduction in ("mean", "none"), f"reduction = {reduction!r}; expected 'mean' or 'none'")


def sanitise(logits: Tensor, valid: Tensor) -> Tensor:
    """Ignored rows may hold anything, also NaN: replace them.  Half precision is computed in float32."""
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    return logits.masked_fill(~valid.unsqueeze(-1), 0)

"""Label proportions: the fraction of a client's samples that each class has (Eq. 12 of the paper)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..kernels.checks import INTEGERS, require


def label_prior(targets: Tensor, num_classes: int, *, ignore_index: int = -100) -> Tensor:
    """The proportion of each label, counts / n, over a client's whole training set: [N] -> [C], [K, N] -> [K, C].

    Labels equal to ignore_index (padding) do not count.
    """
    require(targets.dtype in INTEGERS, f"targets has dtype {targets.dtype}; expected int64 or int32: call .long()")
    require(targets.dim() in (1, 2), f"targets has shape {tuple(targets.shape)}; expected [N], or [K, N]")
    require(num_classes > 0, f"num_classes = {num_classes}; expected a positive number")
    valid = targets != ignore_index
    outside = valid & ((targets < 0) | (targets >= num_classes))
    if outside.any():
        raise ValueError(f"targets has label {targets[outside][0].item()}; expected labels in [0, {num_classes})")
    require(bool(valid.any()), "targets has no label to count")
    return label_proportions(targets, num_classes, ignore_index=ignore_index)


def label_proportions(
    targets: Tensor, num_classes: int, *, ignore_index: int | None = -100, dtype: torch.dtype | None = None
) -> Tensor:
    """The same without checks, for labels known to be valid: nothing is read back from a GPU, so the host never waits
    (bincount would, to learn the largest label).  `ignore_index=None`: every label counts, which saves a few passes.
    A client without labels gets zeros."""
    dtype = dtype or torch.get_default_dtype()
    labels = targets.long()
    counts = labels.new_zeros(*labels.shape[:-1], num_classes)
    if ignore_index is None:
        counts.scatter_add_(-1, labels, torch.ones_like(labels))
        return counts.to(dtype) / max(labels.shape[-1], 1)
    valid = labels != ignore_index
    counts.scatter_add_(-1, labels.where(valid, 0), valid.long())
    return counts.to(dtype) / valid.sum(-1, keepdim=True).clamp_min(1)

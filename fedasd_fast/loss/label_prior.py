"""Label proportions: the fraction of a client's samples that each class has (Eq. 12 of the paper)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..kernels.checks import as_int64, check_integers, require, valid_rows
from ..kernels.client_dimension import check_dimensions


def label_prior(
    targets: Tensor, num_classes: int, *, ignore_index: int = -100, client_dim: int | None = None
) -> Tensor:
    """The proportion of each label, counts / n, over a client's whole training set: [N] -> [C].

    With client_dim=0 of each of K clients: [K, N] -> [K, C].  Labels equal to ignore_index (padding) do not count.
    """
    check_integers(targets, "targets")
    check_dimensions(targets, "targets", client_dim, 1)
    num_classes = as_int64(num_classes, "num_classes")
    ignore_index = as_int64(ignore_index, "ignore_index")
    require(0 < num_classes < 2**31, f"num_classes = {num_classes}; expected a positive number below 2**31")
    if targets.is_meta:
        return label_proportions(targets, num_classes, ignore_index=ignore_index)
    valid = valid_rows(targets, ignore_index)
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

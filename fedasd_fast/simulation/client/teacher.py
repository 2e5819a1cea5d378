"""The teacher of a round: the global model's outputs on clients' samples, computed once and kept."""

from __future__ import annotations

import torch
from torch import Tensor

from ...algorithms import Distillation
from ...loss.teacher_cache import TeacherCache
from .flat_model import FlatModel, channels_last

PADDING = -100  # label of a missing sample: the loss's ignore_index


def teacher_outputs(
    model: FlatModel, inputs: Tensor, targets: Tensor, num_classes: int, distillation: Distillation
) -> TeacherCache:
    """Of the model as it stands, in eval mode, for one client's samples [N, ..] or those of K clients [K, N, ..]."""
    dtype = model.vector.dtype
    return TeacherCache.build(
        model.module,
        channels_last(inputs),
        targets,
        label_proportions(targets, num_classes, dtype),
        dtype=dtype,
        **distillation.teacher_options(),
    )


def label_proportions(targets: Tensor, num_classes: int, dtype: torch.dtype) -> Tensor:
    """[.., C] from labels [.., N].  A bincount would make the host of a GPU wait, to know the highest label."""
    present = targets != PADDING
    labels = targets.where(present, num_classes)
    counts = torch.zeros(*targets.shape[:-1], num_classes + 1, dtype=dtype, device=targets.device)
    counts.scatter_add_(-1, labels, torch.ones_like(labels, dtype=dtype))
    return counts[..., :num_classes] / present.sum(-1, keepdim=True).to(dtype)

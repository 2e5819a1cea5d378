"""The teacher of a round: the global model's outputs on clients' samples, computed once and kept."""

from __future__ import annotations

from torch import Tensor

from ...algorithms import Distillation
from ...loss.label_prior import label_proportions
from ...loss.teacher_cache import TeacherCache
from .flat_model import FlatModel, channels_last

PADDING = -100  # label of a missing sample: the loss's ignore_index


def teacher_outputs(
    model: FlatModel, inputs: Tensor, targets: Tensor, num_classes: int, distillation: Distillation
) -> TeacherCache:
    """Of the model as it stands, in eval mode, for one client's samples [N, ..] or those of K clients [K, N, ..]."""
    dtype = model.vector.dtype
    proportions = label_proportions(targets, num_classes, ignore_index=PADDING, dtype=dtype)
    with model.autocast():
        return TeacherCache.build(
            model.module,
            channels_last(inputs),
            targets,
            proportions,
            dtype=dtype,
            client_dim=0 if targets.dim() == 2 else None,
            **distillation.teacher_options(),
        )

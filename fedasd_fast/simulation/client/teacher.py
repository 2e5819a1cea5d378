"""The teacher of a round: the global model's outputs on clients' samples, computed once and kept."""

from __future__ import annotations

import torch
from torch import Tensor

from ...algorithms import Distillation
from ...data.federated import IGNORED
from ...loss.label_prior import label_proportions
from ...loss.teacher_cache import TeacherCache
from .flat_model import FlatModel, by_position, channels_last

PADDING = IGNORED  # label of a missing sample
_BATCH_ROWS = 512  # positions in a forward pass over sequences


def teacher_outputs(
    model: FlatModel, inputs: Tensor, targets: Tensor, num_classes: int, distillation: Distillation, stacked: bool
) -> TeacherCache:
    """Of the model as it stands, in eval mode, for one client's samples [N, ..] or, stacked, of K clients' [K, N, ..].
    The rows of a sequence are its positions: row i T + t is position t of sample i."""
    dtype, samples = model.vector.dtype, 2 if stacked else 1  # dimensions of clients and samples
    if targets.dim() > samples:
        return _sequence_outputs(model, inputs, targets.flatten(-2), num_classes, distillation)
    proportions = label_proportions(targets, num_classes, ignore_index=PADDING, dtype=dtype)
    with model.autocast():
        return TeacherCache.build(
            model.module,
            channels_last(inputs),
            targets,
            proportions,
            dtype=dtype,
            client_dim=0 if stacked else None,
            **distillation.teacher_options(),
        )


def _sequence_outputs(
    model: FlatModel, inputs: Tensor, targets: Tensor, num_classes: int, distillation: Distillation
) -> TeacherCache:
    """For inputs [N, T] and targets [N T], or [K, N, T] and [K, N T]."""
    length, dtype = inputs.shape[-1], model.vector.dtype
    sequences, mode = inputs.reshape(-1, length), model.module.training
    with torch.no_grad(), model.autocast():
        model.module.eval()
        logits = [by_position(model.module(part)) for part in sequences.split(max(1, _BATCH_ROWS // length))]
        model.module.train(mode)
    return TeacherCache.from_logits(
        torch.cat(logits).view(*targets.shape, num_classes),
        targets,
        label_proportions(targets, num_classes, ignore_index=PADDING, dtype=dtype),
        dtype=dtype,
        client_dim=0 if targets.dim() == 2 else None,
        **distillation.teacher_options(),
    )

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
        logits = teacher_logits(model, inputs.flatten(0, samples - 1))
        return outputs_from_logits(logits, targets, num_classes, distillation, stacked)
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


def teacher_logits(model: FlatModel, inputs: Tensor) -> Tensor:
    """Logits of the model as it stands, in eval mode, for inputs [N, ..]; of sequences, every position has a row."""
    length, mode = inputs.shape[1] if inputs.dim() == 2 else 1, model.module.training
    with torch.no_grad(), model.autocast():
        model.module.eval()
        parts = channels_last(inputs).split(max(1, _BATCH_ROWS // length))
        logits = [by_position(model.module(part)) for part in parts]
        model.module.train(mode)
    return torch.cat(logits)


def outputs_from_logits(
    logits: Tensor, targets: Tensor, num_classes: int, distillation: Distillation, stacked: bool
) -> TeacherCache:
    """From the logits of all samples or positions, clients one after the other, and targets [N, ..] or [K, N, ..]."""
    targets = targets.flatten(1) if stacked else targets.flatten()
    dtype = torch.promote_types(logits.dtype, torch.float32)
    return TeacherCache.from_logits(
        logits.view(*targets.shape, num_classes),
        targets,
        label_proportions(targets, num_classes, ignore_index=PADDING, dtype=dtype),
        dtype=dtype,
        client_dim=0 if stacked else None,
        **distillation.teacher_options(),
    )

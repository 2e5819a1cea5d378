"""Accuracy, cross-entropy and accuracy of each class on the test split, in eval mode, batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data.federated import FederatedData
from ..data.host_to_device import send
from ..data.transform import to_float
from .client.flat_model import FlatModel, by_position, channels_last


def evaluate(model: FlatModel, vector: Tensor, data: FederatedData, batch_size: int) -> tuple[float, float]:
    """Accuracy in percent and mean cross-entropy of the parameters `vector` [P]."""
    return summed(evaluate_batches(model, vector, data, batch_size, range(batches(data, batch_size))), data)


def batches(data: FederatedData, batch_size: int) -> int:
    return -(-len(data.test) // batch_size)


def evaluate_batches(
    model: FlatModel, vector: Tensor, data: FederatedData, batch_size: int, numbers: Iterable[int]
) -> list[tuple[int, float]]:
    """How many samples (or positions of sequences) of each of these batches are right, and the sum of their
    cross-entropies."""
    right, loss = [], []  # read in the end: every look would make a GPU's host wait
    for logits, y in _logits(model, vector, data, batch_size, numbers):
        right.append((logits.argmax(1) == y).sum())  # an ignored position is no class
        loss.append(F.cross_entropy(logits.to(model.vector.dtype), y, reduction="sum"))
    return list(zip(torch.stack(right).tolist(), torch.stack(loss).tolist(), strict=True)) if right else []


def right_by_class(model: FlatModel, vector: Tensor, data: FederatedData, batch_size: int) -> Tensor:
    """How many test samples (or positions) of each class are right, int64 [C]."""
    total = torch.zeros(data.num_classes, dtype=torch.int64, device=model.vector.device)
    for logits, y in _logits(model, vector, data, batch_size, range(batches(data, batch_size))):
        labels = y[y >= 0]  # without ignored positions
        total.index_add_(0, labels, (logits.argmax(1)[y >= 0] == labels).long())
    return total.cpu()


def _logits(
    model: FlatModel, vector: Tensor, data: FederatedData, batch_size: int, numbers: Iterable[int]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits [B, C] and labels [B] of these batches of the test split; positions of sequences are rows, too."""
    device, dtype = model.vector.device, model.vector.dtype
    with model.holding(vector) as module, torch.inference_mode():
        module.eval()
        for number in numbers:
            rows = slice(number * batch_size, (number + 1) * batch_size)
            x, y = send(data.test.inputs[rows], device), send(data.test.targets[rows], device)
            inputs = channels_last(to_float(x, data.mean, data.std, dtype))
            with model.autocast():
                logits = by_position(module(inputs))
            yield logits, y.flatten()


def summed(found: Iterable[tuple[int, float]], data: FederatedData) -> tuple[float, float]:
    """Accuracy and cross-entropy from all batches, in their order: the bits are the same on any number of processes."""
    right, loss = 0, 0.0
    for correct, total in found:
        right, loss = right + correct, loss + total
    return 100.0 * right / data.test.labels, loss / data.test.labels

"""Accuracy and cross-entropy on the test split, in eval mode, batch by batch."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data.federated import FederatedData
from ..data.host_to_device import send
from ..data.transform import to_float
from .client.flat_model import FlatModel, channels_last


def evaluate(model: FlatModel, vector: Tensor, data: FederatedData, batch_size: int) -> tuple[float, float]:
    """Accuracy in percent and mean cross-entropy of the parameters `vector` [P]."""
    return summed(evaluate_batches(model, vector, data, batch_size, range(batches(data, batch_size))), data)


def batches(data: FederatedData, batch_size: int) -> int:
    return -(-len(data.test) // batch_size)


def evaluate_batches(
    model: FlatModel, vector: Tensor, data: FederatedData, batch_size: int, numbers: Iterable[int]
) -> list[tuple[int, float]]:
    """How many samples of each of these batches are right, and the sum of their cross-entropies."""
    device, dtype = model.vector.device, model.vector.dtype
    right, loss = [], []  # read in the end: every look would make a GPU's host wait
    with model.holding(vector) as module, torch.inference_mode():
        module.eval()
        for number in numbers:
            rows = slice(number * batch_size, (number + 1) * batch_size)
            x, y = send(data.test.inputs[rows], device), send(data.test.targets[rows], device)
            inputs = channels_last(to_float(x, data.mean, data.std, dtype))
            with model.autocast():
                logits = module(inputs)
            right.append((logits.argmax(1) == y).sum())
            loss.append(F.cross_entropy(logits.to(dtype), y, reduction="sum"))
    return list(zip(torch.stack(right).tolist(), torch.stack(loss).tolist(), strict=True)) if right else []


def summed(found: Iterable[tuple[int, float]], data: FederatedData) -> tuple[float, float]:
    """Accuracy and cross-entropy from all batches, in their order: the bits are the same on any number of processes."""
    right, loss = 0, 0.0
    for correct, total in found:
        right, loss = right + correct, loss + total
    return 100.0 * right / len(data.test), loss / len(data.test)

"""Accuracy and cross-entropy on the test split, in eval mode."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data.federated import FederatedData
from ..data.transfer import send
from ..data.transform import to_float
from .flat import FlatModel, arranged


def evaluate(model: FlatModel, vector: Tensor, data: FederatedData, batch_size: int) -> tuple[float, float]:
    """Accuracy in percent and mean cross-entropy of the parameters `vector` [P]."""
    device, dtype = model.vector.device, model.vector.dtype
    right, loss = (torch.zeros((), dtype=torch.float64, device=device) for _ in range(2))  # read once, in the end
    with model.holding(vector) as module, torch.inference_mode():
        module.eval()
        for x, y in zip(data.test.inputs.split(batch_size), data.test.targets.split(batch_size), strict=True):
            y = send(y, device)
            logits = module(arranged(to_float(send(x, device), data.mean, data.std, dtype)))
            right += (logits.argmax(1) == y).sum()
            loss += F.cross_entropy(logits, y, reduction="sum")
    count = len(data.test)
    return 100.0 * float(right) / count, float(loss) / count

"""Accuracy of each class, and accuracy over the clients' own label distributions.

A client's accuracy is that of each class on the common test set, weighted by the client's label proportions: what the
model would reach on test data with the client's labels.  Classes without test samples do not count.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..data.federated import FederatedData

MOST_CLIENTS = 1000  # of a larger population as many, evenly spaced: every K/1000-th client, the first included


def class_accuracies(right: Tensor, data: FederatedData) -> list[float | None]:
    """In percent, from the number of right samples of each class [C]; None: the test set has none of it."""
    labels = data.test.targets[data.test.targets >= 0]  # positions of sequences may be ignored
    total = torch.bincount(labels, minlength=data.num_classes).tolist()
    return [100.0 * hits / count if count else None for hits, count in zip(right.tolist(), total, strict=True)]


def sampled_clients(population: int) -> np.ndarray:
    count = min(population, MOST_CLIENTS)
    return np.arange(count, dtype=np.int64) * population // count


class ClientAccuracy:
    def __init__(self, data: FederatedData) -> None:
        """The label counts of the sampled clients are read once."""
        self._counts = data.cohort_label_counts(sampled_clients(data.num_clients)).double()  # [m, C]

    def summary(self, accuracies: list[float | None]) -> dict[str, float]:
        """Mean, mean of the worst tenth and standard deviation over clients, in percent."""
        known = torch.tensor([value is not None for value in accuracies])
        values = torch.tensor([value or 0.0 for value in accuracies], dtype=torch.float64)
        counts = self._counts * known
        return spread(((counts @ values) / counts.sum(1))[counts.sum(1) > 0])


def spread(clients: Tensor) -> dict[str, float]:
    """Mean, mean of the worst tenth and standard deviation over clients [m]."""
    clients = clients.sort().values
    worst = clients[: -(-len(clients) // 10)]
    return {
        "mean": float(clients.mean()),
        "worst_tenth": float(worst.mean()),
        "std": float(clients.std(correction=0)),
    }

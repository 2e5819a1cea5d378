"""Federated data in GPU memory.

A copy from the host takes longer than a small client's local step, so what fits is copied once: the test set, and the
training samples in the order of their clients, which makes `client(k)` a slice.  Synthetic samples, and data that would
take too much of the device, are sent client by client.
"""

from __future__ import annotations

import logging

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .federated import FederatedData, PartitionedData, Samples, consecutive
from .host_to_device import send

_log = logging.getLogger(__name__)
_MEMORY_FRACTION = 0.5  # of the free memory that data may take; the rest is for parameters, activations and sums
_ROWS_PER_COPY = 4096  # so that the host never holds a second copy


def on_device(data: FederatedData, device: torch.device) -> FederatedData:
    """The same data with its samples on `device`; unchanged for a CPU."""
    return DeviceData(data, device) if device.type == "cuda" else data


def free_memory(device: torch.device) -> int:
    return torch.cuda.mem_get_info(device)[0]


class DeviceData(FederatedData):
    """Federated data with samples on a GPU; sizes and label counts stay on the host, where they are used."""

    def __init__(self, host: FederatedData, device: torch.device) -> None:
        self._host, self._device = host, device
        self.name, self.num_classes, self.input_shape = host.name, host.num_classes, host.input_shape
        self.sizes, self.mean, self.std, self.test = host.sizes, host.mean, host.std, host.test
        self._train: Samples | None = None
        room = int(_MEMORY_FRACTION * free_memory(device))
        if self._fits("the test set", host.test.nbytes, room):
            self.test = Samples(host.test.inputs.to(device), host.test.targets.to(device))
            room -= host.test.nbytes
        if not isinstance(host, PartitionedData):
            return
        train, rows = host.dataset.train, host.all_rows
        if self._fits("the training data", train.nbytes // max(len(train), 1) * len(rows), room):
            self._train = Samples(_gathered(train.inputs, rows, device), _gathered(train.targets, rows, device))
            self._ends = np.cumsum(host.sizes.numpy())

    def client(self, k: int) -> Samples:
        if self._train is None:
            samples = self._host.client(k)
            return Samples(send(samples.inputs, self._device), send(samples.targets, self._device))
        self._check_client(k)
        part = slice(int(self._ends[k] - self.sizes[k]), int(self._ends[k]))
        return Samples(self._train.inputs[part], self._train.targets[part])

    def client_test(self, k: int) -> Samples | None:
        """On the host, as the test set would be that does not fit."""
        return self._host.client_test(k)

    def cohort(self, clients: NDArray[np.int64]) -> Samples:
        if self._train is None:
            samples = self._host.cohort(clients)
            return Samples(send(samples.inputs, self._device), send(samples.targets, self._device))
        self._check_clients(clients)
        sizes = self.sizes.numpy()[clients]
        rows = send(torch.from_numpy(consecutive(self._ends[clients] - sizes, sizes)), self._device)
        return Samples(self._train.inputs.index_select(0, rows), self._train.targets.index_select(0, rows))

    def label_counts(self, k: int) -> Tensor:
        return self._host.label_counts(k)

    def cohort_label_counts(self, clients: NDArray[np.int64]) -> Tensor:
        return self._host.cohort_label_counts(clients)

    @property
    def nbytes(self) -> int:
        """Memory of the host."""
        return self._host.nbytes

    def _fits(self, what: str, size: int, room: int) -> bool:
        if size > room:
            _log.warning(
                "%s of %s (%.1f GB) stays on the host and is sent in parts: data may take %.1f GB of %s",
                what, self.name, size / 1e9, room / 1e9, self._device,
            )  # fmt: skip
        return size <= room


def _gathered(source: Tensor, rows: Tensor, device: torch.device) -> Tensor:
    result = torch.empty((len(rows), *source.shape[1:]), dtype=source.dtype, device=device)
    for to, part in zip(result.split(_ROWS_PER_COPY), rows.split(_ROWS_PER_COPY), strict=True):
        to.copy_(source.index_select(0, part))
    return result

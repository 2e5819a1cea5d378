"""A client's samples in one round: the views that its training sees, and their order in each epoch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...common.randomness import Stream, generator
from ...config import Config
from ...data.federated import FederatedData
from ...data.host_to_device import send
from ...data.transform import augment, to_float
from ...kernels.cohort_random import epoch_orders


class LocalSamples:
    def __init__(self, config: Config, data: FederatedData, round: int, client: int, like: Tensor) -> None:
        """`like` has the device and the dtype that inputs shall have."""
        samples = data.client(client)
        self.targets = send(samples.targets, like.device)
        self.inputs = to_float(send(samples.inputs, like.device), data.mean, data.std, like.dtype)
        self._seed, self._round, self._client = config.seed, round, np.array([client])
        self._epochs = 0  # whose order was asked for
        self._shuffle = generator(config.seed, Stream.SHUFFLE, round, client) if config.random_streams == 1 else None
        self.changing = config.augment == "epoch"  # each epoch has views of its own
        if config.augment != "none":
            self._views = generator(config.seed, Stream.AUGMENT, round, client)
        if config.augment == "round":
            self.inputs = augment(self.inputs, self._views)

    def __len__(self) -> int:
        return len(self.targets)

    def view(self) -> Tensor:
        """The inputs of the next epoch, in the order of `targets`."""
        return augment(self.inputs, self._views) if self.changing else self.inputs

    def order(self) -> Tensor:
        """The order of the next epoch: int64 [n]."""
        if self._shuffle:
            order = self._shuffle.permutation(len(self))
        else:
            size, one = np.array([len(self)]), np.array([1])
            order = epoch_orders(self._seed, self._round, self._client, size, one, first_epoch=self._epochs)
        self._epochs += 1
        return send(torch.from_numpy(order), self.targets.device)

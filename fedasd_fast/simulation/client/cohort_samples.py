"""The samples of a cohort in one round: all clients' inputs and labels without padding, and their order in each epoch.

One client after the other; what belongs to client k begins at offsets[k], or order_offsets[k].
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ...common.randomness import Stream, generator
from ...config import Config
from ...data.federated import FederatedData, consecutive
from ...data.host_to_device import send
from ...data.transform import augment, to_float
from ...kernels.cohort_random import epoch_orders


class CohortSamples:
    def __init__(
        self, config: Config, data: FederatedData, round: int, clients: np.ndarray, epochs: np.ndarray, like: Tensor
    ) -> None:
        """Clients [K] train for `epochs` [K].  `like` has the device and the dtype that inputs shall have."""
        self.clients, self.epochs = clients, epochs
        self.sizes = data.sizes.numpy()[clients]  # [K]
        self.offsets = _offsets(self.sizes)  # [K + 1]
        self.order_offsets = _offsets(self.sizes * epochs)  # [K + 1]
        self._config, self._round = config, round
        samples = data.cohort(clients)
        if len(samples) != self.offsets[-1]:
            raise ValueError(
                f"{data.name} gave {len(samples)} samples for clients that have {self.offsets[-1]} by `sizes`; give "
                "client(k) as many samples as sizes[k] says"
            )
        self.targets = send(samples.targets, like.device)  # [N]
        self.inputs = to_float(send(samples.inputs, like.device), data.mean, data.std, like.dtype)  # [N, ..]
        self.changing = config.augment == "epoch"  # each epoch has views of its own
        self._views: list[np.random.Generator] = []
        if config.augment != "none":
            self._views = [generator(config.seed, Stream.AUGMENT, round, int(client)) for client in clients]
        if config.augment == "round":
            self.inputs = self._augmented(np.ones_like(epochs, dtype=bool))

    def __len__(self) -> int:
        """How many clients there are."""
        return len(self.clients)

    @cached_property
    def orders(self) -> Tensor:
        """int64 [sum of epochs_k n_k]: for each client, epoch by epoch, an order of 0 .. n_k - 1."""
        config = self._config
        if config.random_streams == 1:
            orders = np.concatenate([np.empty(0, np.int64), *self._orders_client_by_client()])
        else:
            orders = epoch_orders(config.seed, self._round, self.clients, self.sizes, self.epochs)
        return send(torch.from_numpy(orders), self.targets.device)

    def view(self, epoch: int) -> Tensor:
        """The inputs of an epoch [N, ..]; epochs are asked for one after the other.  A client that has fewer epochs
        keeps the inputs as they are."""
        return self._augmented(epoch < self.epochs) if self.changing else self.inputs

    @cached_property
    def padded_rows(self) -> Tensor | None:
        """Where the samples are in [K, longest] of padded ones, flattened: int64 [N].  None: nothing is padded."""
        if len(self) == 0 or (self.sizes == self.sizes[0]).all():
            return None
        rows = consecutive(np.arange(len(self)) * self.sizes.max(), self.sizes)
        return send(torch.from_numpy(rows), self.targets.device)

    def padded(self, values: Tensor, fill: int = 0) -> Tensor:
        """[K, longest, ..] of values [N, ..], with `fill` behind each client's own."""
        shape = (len(self), int(self.sizes.max()), *values.shape[1:])
        if self.padded_rows is None:
            return values.view(shape)
        result = values.new_full(shape, fill)
        result.flatten(0, 1).index_copy_(0, self.padded_rows, values)
        return result

    def padded_orders(self) -> Tensor:
        """[epochs, K, longest]: the orders of all epochs; padding stays behind the samples, and a client that has fewer
        epochs has its samples as they are."""
        most, longest, clients = int(self.epochs.max()), int(self.sizes.max()), len(self)
        if self.padded_rows is None and (self.epochs == most).all():
            return self.orders.view(clients, most, longest).transpose(0, 1).contiguous()
        result = torch.arange(longest, device=self.targets.device).repeat(most, clients, 1)
        owner = np.repeat(np.arange(clients), self.epochs)  # of each of the orders
        epoch = consecutive(np.zeros_like(self.epochs), self.epochs)
        rows = consecutive((epoch * clients + owner) * longest, self.sizes[owner])
        result.view(-1)[send(torch.from_numpy(rows), self.targets.device)] = self.orders
        return result

    def _orders_client_by_client(self) -> Iterator[np.ndarray]:
        for client, n, epochs in zip(self.clients.tolist(), self.sizes, self.epochs, strict=True):
            rows = np.tile(np.arange(n), (epochs, 1))
            generator(self._config.seed, Stream.SHUFFLE, self._round, client).permuted(rows, axis=1, out=rows)
            yield rows.ravel()

    def _augmented(self, who: np.ndarray) -> Tensor:
        result = self.inputs.clone()
        parts = zip(self._views, who, self.offsets[:-1], self.offsets[1:], strict=True)
        for views, changes, start, end in parts:
            if changes:
                result[start:end] = augment(self.inputs[start:end], views)
        return result


def _offsets(lengths: np.ndarray) -> np.ndarray:
    offsets: np.ndarray = np.concatenate([[0], np.cumsum(lengths)])
    return offsets

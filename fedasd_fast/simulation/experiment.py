"""An experiment: configuration, federated data and method, and what follows from these three alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..algorithms import Method, Server
from ..config import Config
from ..data.federated import FederatedData
from .state import State


@dataclass(frozen=True)
class Experiment:
    config: Config
    data: FederatedData
    method: Method

    @cached_property
    def samples(self) -> int:
        """Training samples of all clients together."""
        return int(self.data.sizes.sum())

    def relative_size(self, client: int) -> float:
        """n_k / mean n."""
        return float(self.data.sizes[client]) * self.data.num_clients / self.samples

    def relative_sizes(self, clients: np.ndarray) -> np.ndarray:
        """Of many clients: float64 [m]."""
        sizes: np.ndarray = self.data.sizes.numpy()[clients] * float(self.data.num_clients) / self.samples
        return sizes

    def proportions(self, clients: np.ndarray) -> np.ndarray:
        """Of many clients in the average over all: float64 [m]."""
        if not self.method.weighted:
            return np.full(len(clients), 1 / self.data.num_clients)
        proportions: np.ndarray = self.data.sizes.numpy()[clients] / self.samples
        return proportions

    def proportion(self, client: int) -> float:
        """The client's weight in the average over all clients."""
        return float(self.data.sizes[client]) / self.samples if self.method.weighted else 1 / self.data.num_clients

    @property
    def tracks_all(self) -> bool:
        """Whether the average over all clients is kept, which takes every client's last model."""
        return "all" in self.config.eval_models

    def learning_rate(self, round: int) -> float:
        optimizer = self.config.optimizer
        return float(optimizer.lr * optimizer.lr_decay_per_round**round)

    def server(self, state: State) -> Server:
        """What the server sends in the round that follows `state`."""
        scale = state.loss_scale.scale if state.loss_scale and self.config.precision == "float16" else None
        rate, clients = self.learning_rate(state.round), self.data.num_clients
        return Server(state.round, rate, state.cloud, state.server, clients, scale)

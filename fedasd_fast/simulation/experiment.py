"""An experiment: configuration, federated data and method, and what follows from these three alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from torch import Tensor

from ..algorithms import Method, Server, hooks_used
from ..config import Config
from ..data.federated import FederatedData
from .devices import SimulatedDevices
from .state import State, first
from .vector_layout import VectorLayout


@dataclass(frozen=True)
class Experiment:
    config: Config
    data: FederatedData
    method: Method
    layout: VectorLayout = field(default_factory=VectorLayout)  # of the model's vector

    @cached_property
    def hooks(self) -> frozenset[str]:
        """What the method overrides of algorithms/hooks.py."""
        return hooks_used(self.method)

    @cached_property
    def devices(self) -> SimulatedDevices | None:
        """None: no time is simulated."""
        return None if self.config.devices.profile == "none" else SimulatedDevices(self.config)

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

    @property
    def keeps_uploads(self) -> bool:
        """Whether a client's last model is kept: also for what stays with the client."""
        return self.tracks_all or self.layout.local is not None

    def learning_rate(self, round: int) -> float:
        optimizer = self.config.optimizer
        return float(optimizer.lr * optimizer.lr_decay_per_round**round)

    def label_counts(self, client: int) -> Tensor | None:
        """[C] for the hooks that need them, which costs a pass over the client's labels; None for the others."""
        return self.data.label_counts(client) if self.hooks & {"logits", "local_loss"} else None

    def first_state(self, initial: Tensor) -> State:
        return first(self.config, self.method, initial, self.devices.first_clock if self.devices else None)

    def server(self, state: State) -> Server:
        """What the server sends in the round that follows `state`."""
        scale = state.loss_scale.scale if state.loss_scale and self.config.precision == "float16" else None
        return self.server_at(state.round, state.cloud, state.server, state.initial, scale)

    def server_at(
        self, round: int, model: Tensor, state: Mapping[str, Tensor], initial: Tensor, loss_scale: float | None = None
    ) -> Server:
        """From whole vectors.  What stays with clients is not sent: they begin with its initial values."""
        lr, momentum, layout = self.learning_rate(round), self.config.optimizer.momentum, self.layout
        model = layout.personal(model, initial)
        return Server(
            round, lr, layout.trained(model), {name: layout.trained(vector) for name, vector in state.items()},
            self.data.num_clients, layout.trained(initial), momentum, loss_scale, statistics=layout.statistics(model),
        )  # fmt: skip

    def personal(self, server: Server, upload: Tensor | None) -> Server:
        """The server as a client sees it whose last model is `upload` [N]: with the client's own values of what stays
        with it; None: it has none yet."""
        if self.layout.local is None or upload is None:
            return server
        own = self.layout.personal(self.sent(server), upload.to(server.model.device))
        return replace(server, model=self.layout.trained(own), statistics=self.layout.statistics(own))

    def sent(self, server: Server) -> Tensor:
        """The whole vector [N] that clients start from."""
        return self.layout.whole(server.model, server.statistics)

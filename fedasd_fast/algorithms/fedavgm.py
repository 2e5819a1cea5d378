"""FedAvgM (Hsu et al., 2019, arXiv:1909.06335): the server moves by a running sum of the clients' mean changes.

v <- beta v + (mean - w_t),    w_t+1 = w_t + lr v
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from .base import Method, Server
from .registry import register


@register("fedavgm")
@dataclass(frozen=True)
class FedAvgM(Method):
    beta: float = 0.9
    lr: float = 1.0  # of the server

    server_state = ("velocity",)

    def combine(self, server: Server, mean: Tensor, change: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        model = server.model.double()
        velocity = self.beta * server.state["velocity"] + (mean - model)
        return model + self.lr * velocity, {"velocity": velocity}

"""FedCM (Xu et al., 2021, arXiv:2106.10874): local gradients are mixed with the last round's mean direction.

    alpha g + (1 - alpha) D,    D <- mean over the participants of (w_t - w_k) / (steps lr)

A public implementation (woodenchild95/FL-Simulator) divides by the same number of steps for all clients.  The mean is
not weighted by the number of samples.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from .base import Client, Correction, Method, Server
from .registry import register


@register("fedcm")
@dataclass(frozen=True)
class FedCM(Method):
    alpha: float = 0.1

    server_state = ("direction",)
    extra_down = 1  # the direction
    sent = ("direction",)
    weighted = False
    sgd_only = True

    def gradient_factor(self, server: Server, client: Client) -> float:
        return self.alpha

    def correction(self, server: Server, client: Client) -> Correction:
        return Correction(linear=server.state["direction"].to(server.model.dtype) * (1 - self.alpha))

    def finish(self, server: Server, client: Client, end: Tensor, steps: int | Tensor) -> dict[str, Tensor]:
        return {"direction": (server.model - end) / (steps * server.lr)}

    def combine(self, server: Server, mean: Tensor, change: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return mean, {"direction": change["direction"]}

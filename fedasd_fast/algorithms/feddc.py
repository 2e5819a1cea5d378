"""FedDC (Gao et al., CVPR 2022, arXiv:2203.11751): SCAFFOLD whose clients stay near the model minus their drift h_k.

    loss + (alpha/2) ||w - (w_t - h_k)||^2 + <w, c - c_k>,    c_k <- c_k - c + (w_t - w_k)/(steps lr)
    h_k += w_k - w_t,    w_t+1 = mean + mean of h over all clients

The authors' code (gaoliang13/FedDC) divides alpha and c by the client's relative size, and has the same number of steps
and the first round's learning rate for all in c_k.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from .base import Client, Correction, Server
from .registry import register
from .scaffold import Scaffold


@register("feddc")
@dataclass(frozen=True)
class FedDC(Scaffold):
    alpha: float = 0.01

    client_state = ("c", "h")
    server_state = ("c", "h")

    def correction(self, server: Server, client: Client) -> Correction:
        linear = super().correction(server, client).linear
        assert linear is not None
        return Correction(quadratic=self.alpha, linear=linear - self.alpha * (server.model - client.state["h"]))

    def finish(self, server: Server, client: Client, end: Tensor, steps: int | Tensor) -> dict[str, Tensor]:
        return super().finish(server, client, end, steps) | {"h": client.state["h"] + (end - server.model)}

    def combine(self, server: Server, mean: Tensor, change: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        h = server.state["h"] + change["h"]
        return mean + h, super().combine(server, mean, change)[1] | {"h": h}

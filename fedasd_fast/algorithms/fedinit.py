"""FedInit (Sun et al., 2023, arXiv:2306.05706): a client starts beyond w_t, as seen from where it ended last.

    start_k = w_t + beta (w_t - last_k),    w_t+1 = w_t + mean of (w_k - start_k)

After the authors' code (woodenchild95/FL-Simulator, relaxed initialisation), where last_k is w_0 for a client that
never took part, and the mean is not weighted by the number of samples.
"""

from dataclasses import dataclass

from torch import Tensor

from .base import Client, Method, Server
from .registry import register


@register("fedinit")
@dataclass(frozen=True)
class FedInit(Method):
    beta: float = 0.1

    client_state = ("last",)  # as its distance from w_0: zeros at first
    weighted = False

    def start(self, server: Server, client: Client) -> Tensor:
        return server.model + self.beta * (server.model - server.initial - client.state["last"])

    def finish(self, server: Server, client: Client, end: Tensor, steps: int | Tensor) -> dict[str, Tensor]:
        return {"last": end - server.initial}

    def contribution(self, server: Server, client: Client, end: Tensor, steps: int) -> Tensor:
        return server.model + (end - self.start(server, client))

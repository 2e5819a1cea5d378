"""FedAdam (Reddi et al., 2021, arXiv:2003.00295): the clients' mean change is the gradient of a server's Adam.

    m <- beta1 m + (1 - beta1) d,    v <- beta2 v + (1 - beta2) d^2,    w_t+1 = w_t + lr m / (sqrt(v) + tau)

with d = mean - w_t and v = tau^2 at first, without bias correction, as in the paper's algorithm 2.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from .base import Method, Server
from .registry import register


@register("fedadam")
@dataclass(frozen=True)
class FedAdam(Method):
    lr: float = 0.01  # of the server
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    server_state = ("first", "second")  # m, and v - tau^2: zeros at first

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        return self.beta2 * v + (1 - self.beta2) * square

    def combine(self, server: Server, mean: Tensor, change: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        model = server.model.double()
        delta = mean - model
        first = self.beta1 * server.state["first"] + (1 - self.beta1) * delta
        second = self.second(server.state["second"] + self.tau**2, delta.square())
        step = self.lr * first / (second.sqrt() + self.tau)
        return model + step, {"first": first, "second": second - self.tau**2}

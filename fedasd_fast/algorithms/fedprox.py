"""FedProx (Li et al., 2020): the local loss has (mu/2) ||w - w_t||^2 added, inside the clipped gradient."""

from dataclasses import dataclass

from .base import Client, Correction, Method, Server
from .registry import register


@register("fedprox")
@dataclass(frozen=True)
class FedProx(Method):
    mu: float = 1e-4

    batched = True

    def correction(self, server: Server, client: Client) -> Correction:
        return Correction(quadratic=self.mu, linear=server.model * -self.mu)

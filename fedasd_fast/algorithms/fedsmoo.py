"""FedSMOO (Sun et al., ICML 2023, arXiv:2305.11584): FedDyn for the models and for their perturbations.

    u = g - mu_k - s,    e = rho u / ||u||,    mu_k <- mu_k + e - s    in every local step; the gradient is at w + e
    s <- rho m / ||m||,    m the mean of mu_k over the round's participants

After the authors' code (woodenchild95/FL-Simulator), with the dual part and its alpha_k as in FedDyn here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from .base import Client, Perturbation, Server
from .feddyn import FedDyn
from .registry import register


@register("fedsmoo")
@dataclass(frozen=True)
class FedSMOO(FedDyn):
    alpha: float = 0.1
    rho: float = 0.1

    client_state = ("h", "mu")
    extra_down = 1  # s
    server_state = ("h", "s")
    sent = ("sent_mu",)  # the mean of mu over the participants is not that of its changes over all clients

    def perturbation(self, server: Server, client: Client) -> Perturbation | None:
        return Perturbation(dual=client.state["mu"], common=server.state["s"], rho=self.rho)

    def finish(self, server: Server, client: Client, end: Tensor, steps: int | Tensor) -> dict[str, Tensor]:
        assert client.dual is not None
        return super().finish(server, client, end, steps) | {"mu": client.dual, "sent_mu": client.dual}

    def combine(self, server: Server, mean: Tensor, change: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        model, state = super().combine(server, mean, change)
        mu = change["sent_mu"]
        return model, state | {"s": mu * (self.rho / (torch.linalg.vector_norm(mu) + 1e-7))}

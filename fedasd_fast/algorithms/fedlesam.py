"""FedLESAM (Fan et al., ICML 2024, arXiv:2405.18890): a sharpness-aware step with a known perturbation: one gradient.

    e = rho (old_k - w_t) / ||old_k - w_t||

old_k is the global model that the client received when it last took part; without one there is no perturbation.  The
released code (MediaBrain-SJTU/FedLESAM) takes the last global change for every client, and indexes it as a flat vector
by the number of a layer; here it is the paper's formula.  The mean is not weighted by the number of samples.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from .base import Client, Method, Perturbation, Server
from .registry import register


@register("fedlesam")
@dataclass(frozen=True)
class FedLESAM(Method):
    rho: float = 0.1

    client_state = ("received",)  # zeros: never
    weighted = False

    def perturbation(self, server: Server, client: Client) -> Perturbation | None:
        received = client.state["received"]
        if not received.any():
            return None
        direction = received - server.model
        return Perturbation(fixed=direction * (self.rho / (torch.linalg.vector_norm(direction) + 1e-7)))

    def finish(self, server: Server, client: Client, end: Tensor, steps: int | Tensor) -> dict[str, Tensor]:
        return {"received": server.model}

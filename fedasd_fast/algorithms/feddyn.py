"""FedDyn (Acar et al., 2021): each client keeps a dual vector h_k and adds alpha_k (<w, h_k - w_t> + ||w||^2 / 2).

The quadratic part acts as weight decay, after clipping, as in the authors' code.  The server's model is the mean of the
participants plus the mean of h over all clients; neither is weighted by the number of samples.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from .base import Client, Correction, Method, Server
from .batching import as_factor, quotient
from .registry import register


@register("feddyn")
@dataclass(frozen=True)
class FedDyn(Method):
    alpha: float = 0.01

    client_state: ClassVar[tuple[str, ...]] = ("h",)
    server_state: ClassVar[tuple[str, ...]] = ("h",)  # mean of h_k over all clients
    weighted = False
    batched = True

    def correction(self, server: Server, client: Client) -> Correction:
        alpha = quotient(self.alpha, client.relative_size)
        linear = client.state["h"] - server.model
        return Correction(linear=linear.mul_(as_factor(alpha, linear)), decay=alpha)

    def finish(self, server: Server, client: Client, end: Tensor, steps: int | Tensor) -> dict[str, Tensor]:
        return {"h": (end - server.model).add_(client.state["h"])}

    def combine(self, server: Server, mean: Tensor, change: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        h = server.state["h"] + change["h"]
        return mean + h, {"h": h}

"""SCAFFOLD (Karimireddy et al., 2020): control variates c_k and c correct each local gradient by c - c_k.

Afterwards c_k <- c_k - c + (w_t - w_k) / (steps lr), with the current learning rate, and c follows the mean of c_k.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from .base import Client, Correction, Method, Server
from .registry import register


@register("scaffold")
@dataclass(frozen=True)
class Scaffold(Method):
    client_state: ClassVar[tuple[str, ...]] = ("c",)
    server_state: ClassVar[tuple[str, ...]] = ("c",)
    extra_down: ClassVar[int] = 1  # c
    extra_up: ClassVar[int] = 1  # the change of c_k
    weighted = False
    sgd_only = True

    def correction(self, server: Server, client: Client) -> Correction:
        return Correction(linear=server.state["c"].to(server.model.dtype) - client.state["c"])

    def finish(self, server: Server, client: Client, end: Tensor, steps: int | Tensor) -> dict[str, Tensor]:
        drift = (server.model - end) / (steps * server.lr)
        return {"c": client.state["c"] - server.state["c"].to(end.dtype) + drift}

    def combine(self, server: Server, mean: Tensor, change: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return mean, {"c": server.state["c"] + change["c"]}

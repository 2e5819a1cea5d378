"""FedGMT (Li et al., ICML 2025): clients distil from a moving average of the global models, and keep dual vectors h_k.

    loss = CE + gamma tau^2 KL(teacher || student) + <w, h_k> / beta,    h_k += w_k - w_t
    w_t+1 = mean + mean of h over all clients,    average <- alpha average + (1 - alpha) w_t+1

After the authors' code (harrylee999/FL-SAM).  With ASD the ASD term takes the place of theirs, with the same teacher.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from ..common.schema import ConfigError
from .base import Client, Correction, Distillation, Method, Server
from .registry import register


@register("fedgmt")
@dataclass(frozen=True)
class FedGMT(Method):
    alpha: float = 0.95
    gamma: float = 1.0
    tau: float = 3.0
    beta: float = 10.0

    client_state = ("h",)
    extra_down = 1  # the average
    server_state = ("h", "average")  # the average as its distance from w_0: zeros at first

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta == 0 or self.tau == 0:
            raise ConfigError(f"method_args: beta = {self.beta}, tau = {self.tau}; expected positive numbers")

    def distillation(self, asd: Distillation, enabled: bool) -> Distillation | None:
        if enabled:
            return super().distillation(asd, enabled)
        weight, tau = self.gamma * self.tau**2, self.tau
        return replace(asd, weight=weight, temperature=tau, weighting="uniform", divergence="kl") if weight else None

    def teacher(self, server: Server) -> Tensor | None:
        return server.initial + server.state["average"]

    def correction(self, server: Server, client: Client) -> Correction:
        return Correction(linear=client.state["h"] / self.beta)

    def finish(self, server: Server, client: Client, end: Tensor, steps: int | Tensor) -> dict[str, Tensor]:
        return {"h": client.state["h"] + (end - server.model)}

    def combine(self, server: Server, mean: Tensor, change: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        h = server.state["h"] + change["h"]
        model = mean + h
        average = self.alpha * server.state["average"] + (1 - self.alpha) * (model - server.initial)
        return model, {"h": h, "average": average}

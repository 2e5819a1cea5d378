"""FedSAM (Caldarola et al., 2022; Qu et al., 2022): FedAvg with sharpness-aware local steps.

With ASD both gradients include the distillation term.
"""

from dataclasses import dataclass

from .base import Client, Correction, Method, Server
from .registry import register


@register("fedsam")
@dataclass(frozen=True)
class FedSAM(Method):
    rho: float = 0.05

    batched = True

    def correction(self, server: Server, client: Client) -> Correction:
        return Correction(rho=self.rho)

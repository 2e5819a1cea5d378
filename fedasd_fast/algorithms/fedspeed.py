"""FedSpeed (Sun et al., 2023): FedDyn whose loss gradient is taken after an ascent step of length rho.

The dual term alpha (h_k - w_t) is in the descent step only.  With ASD both gradients include the distillation term.
"""

from dataclasses import dataclass, replace

from .base import Client, Correction, Server
from .feddyn import FedDyn
from .registry import register


@register("fedspeed")
@dataclass(frozen=True)
class FedSpeed(FedDyn):
    rho: float = 0.1

    def correction(self, server: Server, client: Client) -> Correction:
        return replace(super().correction(server, client), rho=self.rho, rho_epsilon=1e-7)

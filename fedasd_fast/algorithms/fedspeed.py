"""FedSpeed (Sun et al., 2023): FedDyn whose loss gradient is taken after an ascent step of length rho.

The dual term alpha (h_k - w_t) is in the descent step only.  With ASD both gradients include the distillation term.
Original: rho = 0.1.  The ASD paper: the released code computes the ascent step and then does not apply it, which makes
the method FedDyn, rho = 0.
"""

from dataclasses import dataclass, replace
from typing import Literal

from .base import Client, Correction, Server
from .feddyn import FedDyn
from .registry import register

_DEFAULTS = {"official": 0.1, "paper": 0.0}


@register("fedspeed")
@dataclass(frozen=True)
class FedSpeed(FedDyn):
    rho: float | None = None  # null: that of the variant
    variant: Literal["official", "paper"] = "official"

    batched = True

    def correction(self, server: Server, client: Client) -> Correction:
        rho = _DEFAULTS[self.variant] if self.rho is None else self.rho
        return replace(super().correction(server, client), rho=rho, rho_epsilon=1e-7)

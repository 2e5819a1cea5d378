"""FedSOL (Lee et al., CVPR 2024, arXiv:2308.12532): the ascent follows a distillation loss, the descent the client's.

    e = rho d / (||d|| + 1e-5),    d = gradient of mean KL(global || local) at temperature 3,    g = that of CE at w + e

After the authors' code (Lee-Gihun/FedSOL, fedsol_fixed, which perturbs all layers).  Their adaptive radius, which
scales e by |w - w_t| normalised column by column in each layer, is left out.  In the first step d is 0 but for rounding
errors, which their 1e-12 in place of 1e-5 would blow up to the length rho.  With ASD the term is in g only.
"""

from dataclasses import dataclass, replace

from ..common.schema import ConfigError
from .base import Client, Correction, Distillation, Method, Server
from .registry import register


@register("fedsol")
@dataclass(frozen=True)
class FedSOL(Method):
    rho: float = 1.0
    temperature: float = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temperature == 0:
            raise ConfigError("method_args.temperature = 0; expected a positive number")

    def correction(self, server: Server, client: Client) -> Correction:
        return Correction(rho=self.rho, rho_epsilon=1e-5)

    def ascent_loss(self, asd: Distillation) -> Distillation | None:
        return replace(asd, weight=1.0, temperature=self.temperature, weighting="uniform", divergence="kl")

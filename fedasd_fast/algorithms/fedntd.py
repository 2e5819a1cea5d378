"""FedNTD (Lee et al., 2022): distillation over the classes that are not the true one, with equal weights.

The ASD paper runs it at temperature 2 without tau^2, with the same coefficient as ASD; the original at temperature 1
with beta tau^2, beta = 1.  With ASD the adaptive weights replace the equal ones; the term is not added a second time.
"""

from dataclasses import dataclass, replace
from typing import Literal

from ..common.schema import ConfigError
from .base import Distillation, Method
from .registry import register


@register("fedntd")
@dataclass(frozen=True)
class FedNTD(Method):
    variant: Literal["paper", "official"] = "paper"
    beta: float | None = None  # null: asd.weight (paper), 1 (official)
    temperature: float | None = None  # null: asd.temperature (paper), 1 (official)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temperature == 0:
            raise ConfigError("method_args.temperature = 0; expected a positive number, or null for the default")

    def distillation(self, asd: Distillation, enabled: bool) -> Distillation | None:
        official = self.variant == "official"
        temperature = self.temperature if self.temperature is not None else (1.0 if official else asd.temperature)
        beta = self.beta if self.beta is not None else (1.0 if official else asd.weight)
        weight = beta * temperature**2 if official else beta
        weighting = asd.weighting if enabled else "uniform"
        term = replace(asd, weight=weight, temperature=temperature, weighting=weighting, not_true=True)
        return term if weight else None

"""FedGKD (Yao et al., 2021, arXiv:2107.00051): clients distil from the average of the last M global models.

The loss is CE + coefficient tau^2 KL(teacher || student), its mean over the batch.  There is none in the first round,
which has no trained model to distil from, as in the authors' code (CGCL-codes/FedGKD).  With ASD the ASD term takes its
place, with the same teacher.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..common.schema import ConfigError
from .base import Distillation, Method, Server
from .registry import register


@register("fedgkd")
@dataclass(frozen=True)
class FedGKD(Method):
    extra_down = 1  # the teacher

    models: int = 5  # M
    coefficient: float = 0.1
    temperature: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.models < 1 or self.temperature == 0:
            raise ConfigError(
                f"method_args: models = {self.models}, temperature = {self.temperature}; expected 1 or more models "
                "and a positive temperature"
            )
        # The newest model first; a model that does not exist yet is all zeros.
        object.__setattr__(self, "server_state", tuple(f"model{age}" for age in range(self.models)))

    def distillation(self, asd: Distillation, enabled: bool) -> Distillation | None:
        if enabled:
            return super().distillation(asd, enabled)
        weight, tau = self.coefficient * self.temperature**2, self.temperature
        return replace(asd, weight=weight, temperature=tau, weighting="uniform", divergence="kl") if weight else None

    def teacher(self, server: Server) -> Tensor | None:
        known = [model for model in server.state.values() if model.any()]
        return torch.stack(known).mean(0) if known else None

    def combine(self, server: Server, mean: Tensor, change: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        past = [server.state[name] for name in self.server_state]
        return mean, dict(zip(self.server_state, [mean, *past[:-1]], strict=True))

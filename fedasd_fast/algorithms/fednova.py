"""FedNova (Wang et al., 2020, arXiv:2007.07481): changes are divided by the number of local steps, then averaged.

    w_t+1 = w_t + (sum_k p_k a_k) sum_k p_k (w_k - w_t) / a_k

a_k is the number of steps; with local momentum rho, step j of tau counts (1 - rho^(tau - j + 1)) / (1 - rho).  Followed
after the authors' code (JYWa/FedNova); clipping and weight decay do not enter a_k, there as here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from .base import Client, Method, Server
from .registry import register


@register("fednova")
@dataclass(frozen=True)
class FedNova(Method):
    sgd_only = True

    def contribution(self, server: Server, client: Client, end: Tensor, steps: int) -> Tensor:
        return server.model + (end - server.model) / _effective_steps(steps, server.momentum)

    def combine(self, server: Server, mean: Tensor, change: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        updates, model = server.updates, server.model.double()
        effective = [_effective_steps(int(steps), server.momentum) for steps in updates.steps]
        return model + float(updates.weights @ np.array(effective)) * (mean - model), {}


def _effective_steps(steps: int, momentum: float) -> float:
    """||a_k||_1"""
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)

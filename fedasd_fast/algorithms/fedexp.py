"""FedExP (Jhunjhunwala et al., 2023, arXiv:2301.09604): the server extrapolates along the mean change d = mean - w_t.

    w_t+1 = w_t + max(1, mean_k ||w_k - w_t||^2 / (2 (||d||^2 + epsilon))) d

The authors' code (Divyansh03/FedExP) has epsilon times the number of participants, decays epsilon with the square of
the learning rate's decay, and evaluates the average of the last two models; here it is the paper's step.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from .base import Method, Server
from .registry import register


@register("fedexp")
@dataclass(frozen=True)
class FedExP(Method):
    epsilon: float = 1e-3

    def combine(self, server: Server, mean: Tensor, change: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        model = server.model.double()
        delta = mean - model
        length = server.updates.mean_square / (2 * (float(delta.square().sum()) + self.epsilon))
        return model + max(1.0, length) * delta, {}

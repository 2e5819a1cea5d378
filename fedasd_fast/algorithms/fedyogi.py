"""FedYogi (Reddi et al., 2021, arXiv:2003.00295): FedAdam whose second moment moves by at most (1 - beta2) d^2:

v <- v - (1 - beta2) d^2 sign(v - d^2)
"""

from dataclasses import dataclass

from torch import Tensor

from .fedadam import FedAdam
from .registry import register


@register("fedyogi")
@dataclass(frozen=True)
class FedYogi(FedAdam):
    def second(self, v: Tensor, square: Tensor) -> Tensor:
        return v - (1 - self.beta2) * square * (v - square).sign()

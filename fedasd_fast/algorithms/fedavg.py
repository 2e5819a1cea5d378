"""FedAvg (McMahan et al., 2017): local SGD, and the average of the models weighted by number of samples."""

from dataclasses import dataclass

from .base import Method
from .registry import register


@register("fedavg")
@dataclass(frozen=True)
class FedAvg(Method):
    pass

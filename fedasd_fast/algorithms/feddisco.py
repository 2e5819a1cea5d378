"""FedDisco (Ye et al., 2023): clients whose label distribution is far from uniform get less weight.

    weight_k ~ max(0, n_k / sum n - a d_k / sum d + b),    d_k = KL(label distribution of k || uniform)

Original: sums over the round's participants, a = 0.5, b = 0.1.  The ASD paper: sums over all clients, a = 0.1, b = 0.5,
which at 100 clients gives nearly the weights of FedAvg.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from .base import Cohort, Method
from .registry import register

_DEFAULTS = {"official": (0.5, 0.1, "round"), "paper": (0.1, 0.5, "all")}


@register("feddisco")
@dataclass(frozen=True)
class FedDisco(Method):
    variant: Literal["official", "paper"] = "official"
    a: float | None = None  # null: that of the variant
    b: float | None = None
    scope: Literal["round", "all"] | None = None

    def weights(self, cohort: Cohort) -> np.ndarray:
        default_a, default_b, default_scope = _DEFAULTS[self.variant]
        a = default_a if self.a is None else self.a
        b = default_b if self.b is None else self.b
        whole = (self.scope or default_scope) == "all"
        clients = np.arange(len(cohort.all_sizes)) if whole else cohort.clients
        sizes = (cohort.all_sizes if whole else cohort.sizes).astype(np.float64)
        distance = _from_uniform(cohort.label_proportions(clients))
        if distance.any():  # all 0 if every client has uniform labels
            distance = distance / distance.sum()
        weights = np.maximum(0.0, sizes / sizes.sum() - a * distance + b)
        if whole:
            weights = weights[cohort.clients]
        return weights if weights.sum() > 0 else super().weights(cohort)


def _from_uniform(proportions: np.ndarray) -> np.ndarray:
    """KL(proportions || uniform) = log C - entropy, of each row."""
    logs = np.log(proportions, out=np.zeros_like(proportions), where=proportions > 0)
    distance: np.ndarray = np.log(proportions.shape[1]) + (proportions * logs).sum(1)
    return np.where(distance > 1e-12, distance, 0.0)  # rounding errors of 0 must not be normalised to a distance

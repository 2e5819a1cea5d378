"""G_d as a function of lambda: a ratio of two parabolas, known from six numbers.

With the gradients c_k of client k's cross-entropy and a_k of its distillation term at one point,

    G_d(lambda) = mean_k ||c_k + lambda a_k||^2 / ||mean_k (c_k + lambda a_k)||^2

so one pass over the clients gives the whole curve.  By Jensen's inequality it is nowhere below 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Parabola:
    """a lambda^2 + b lambda + c."""

    a: float
    b: float
    c: float

    def __call__(self, x: float) -> float:
        return (self.a * x + self.b) * x + self.c


@dataclass(frozen=True)
class Ratio:
    above: Parabola  # mean of the squared norms
    below: Parabola  # squared norm of the mean

    def __call__(self, x: float) -> float | None:
        """None: the clients' gradients sum to nothing, and G_d is not defined."""
        return self._over(self.above(x), self.below(x))

    def slope(self, x: float) -> float | None:
        """dG_d / dlambda."""
        n, d = self.above, self.below
        turn = (2 * n.a * x + n.b) * d(x) - n(x) * (2 * d.a * x + d.b)
        return self._over(turn, d(x) ** 2)

    @property
    def limit(self) -> float | None:
        """Of G_d for ever larger lambda: the dissimilarity of the distillation gradients alone."""
        return self._over(self.above.a, self.below.a)

    @property
    def lambda_c(self) -> float | None:
        """From here on G_d(lambda) < G_d(0); None: that holds for no end of the axis.

        G_d(lambda) < G_d(0) is lambda (q lambda + r) < 0 with q, r as below; for large lambda q decides.
        """
        n, d = self.above, self.below
        q, r = n.a * d.c - n.c * d.a, n.b * d.c - n.c * d.b
        if q < 0:
            return max(0.0, -r / q)
        return 0.0 if q == 0 and r < 0 else None

    @property
    def best(self) -> float | None:
        """The lambda >= 0 where G_d is least; None: it falls to its limit and is never there, or is not defined."""
        n, d = self.above, self.below
        # The numerator of the slope is itself a parabola.
        u, v, w = n.a * d.b - n.b * d.a, 2 * (n.a * d.c - n.c * d.a), n.b * d.c - n.c * d.b
        places = [0.0, *(x for x in _roots(u, v, w) if x > 0)]
        found = [(value, x) for x in places if (value := self(x)) is not None]
        if not found:
            return None
        value, place = min(found)
        return place if self.limit is None or value <= self.limit else None

    @staticmethod
    def _over(above: float, below: float) -> float | None:
        return above / below if below > 0 and math.isfinite(above / below) else None


class Moments:
    """The sums over clients that a Ratio is made of."""

    def __init__(self, like: Tensor) -> None:
        self._sums = torch.zeros(2, len(like), dtype=torch.float64, device=like.device)  # of c_k and a_k
        self._products = torch.zeros(3, dtype=torch.float64)  # a_k a_k, c_k a_k, c_k c_k
        self._number = 0

    def add(self, ce: Tensor, asd: Tensor, scale: float = 1.0) -> None:
        """Of one client: gradients [P]; that of the distillation counts `scale` times."""
        c, a = ce.double(), asd.double() * scale
        self._sums[0] += c
        self._sums[1] += a
        self._products += torch.tensor([float(a @ a), float(c @ a), float(c @ c)], dtype=torch.float64)
        self._number += 1

    def ratio(self) -> Ratio:
        c, a = self._sums / self._number
        aa, ca, cc = (self._products / self._number).tolist()
        return Ratio(Parabola(aa, 2 * ca, cc), Parabola(float(a @ a), 2 * float(c @ a), float(c @ c)))


def of_population(ratio: Ratio, x: float, drawn: int, population: int) -> float | None:
    """G_d(x) of a population, from the ratio of the clients drawn from it; None: too few to tell.

    The mean of few vectors is longer than that of all, by (1/m - 1/K) times their variance on average, so that clients
    look more alike than they are.  Here that is taken off, which leaves the denominator without bias.
    """
    squares, square = ratio.above(x), ratio.below(x)
    if drawn < population:
        if drawn < 2:
            return None
        square -= (1 / drawn - 1 / population) * (squares - square) * drawn / (drawn - 1)
    return squares / square if square > 0 else None


def _roots(a: float, b: float, c: float) -> list[float]:
    """Real ones of a x^2 + b x + c, each computed without cancellation."""
    if a == 0:
        return [-c / b] if b else []
    inside = b * b - 4 * a * c
    if inside < 0:
        return []
    q = -(b + math.copysign(math.sqrt(inside), b)) / 2
    return [q / a, c / q] if q else [0.0]

"""What the proposition "lambda >= lambda_c lowers G_d" takes for granted, measured.

- Priors differ: c_n > c_d (its lemma 2), with c_n = K sum_kc p_kc^2 and c_d = sum_c (sum_k p_kc)^2.
- All clients own the same classes: only then 1 / p_kc exists for all, and a_n = a_d.  In general a_n = K sum_k |S_k|
  and a_d = sum_kl |S_k and S_l|, so that G_d falls to a_n / a_d >= 1 at best.
- Class-wise gradients are weakly correlated and of similar magnitude.  The paper's inequality is the wrong way round;
  its proof drops the products of different classes, so it needs |g_c . g_m| << ||g_c||^2.
- In the expansion of G_d then a and b are the same above and below; the measured six numbers tell how far that holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..common.progress import Tell, silent
from ..common.randomness import Stream, generator
from .dissimilarity_ratio import Ratio

_MEMORY = 10**9  # bytes that the gradients of all classes may take; of many classes some are drawn


@dataclass(frozen=True)
class Correlation:
    """Of the gradients of different classes."""

    cosine: float | None  # mean of |cos| over pairs; the assumption wants it far below 1
    product: float | None  # mean of |g_c . g_m| / ||g_c||^2, likewise
    magnitudes: float | None  # largest over smallest norm; wanted: about 1


@dataclass(frozen=True)
class Condition:
    label_ratio: float  # c_n / c_d; above 1: the clients' label shares differ
    support_ratio: float  # a_n / a_d; 1: all clients own the same classes
    classes: int  # that class-wise gradients are from
    ce: Correlation
    asd: Correlation

    def lines(self, ratio: Ratio) -> list[str]:
        n, d = ratio.above, ratio.below
        b = f"{n.b / d.b:.3g}" if d.b else "undefined"
        a = f"{n.a / d.a:.3g}" if d.a else "undefined"
        return [
            "  the proposition takes for granted:",
            f"    label shares of clients differ           c_n/c_d = {self.label_ratio:.3g} (wanted: above 1)",
            f"    clients own the same classes             a_n/a_d = {self.support_ratio:.3g} (wanted: 1)",
            f"    gradients of classes hardly correlated   mean |cos| {_text(self.ce.cosine)} of cross-entropy, "
            f"{_text(self.asd.cosine)} of distillation (wanted: near 0)",
            f"    and of similar magnitude                 largest/smallest {_text(self.ce.magnitudes)} and "
            f"{_text(self.asd.magnitudes)} (wanted: near 1)",
            f"    so that a and b cancel                   measured: a {a}, b {b} (wanted: 1)",
        ]


def label_ratios(shares: Tensor) -> tuple[float, float]:
    """c_n / c_d and a_n / a_d from the clients' label shares [K, C]."""

    def ratio(values: Tensor) -> float:
        return float(len(values) * (values**2).sum() / (values.sum(0) ** 2).sum())

    return ratio(shares), ratio((shares > 0).to(shares.dtype))


def class_gradients(
    inputs: Tensor,
    targets: Tensor,
    classes: int,
    parameters: int,
    gradients: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    seed: int,
    tell: Tell = silent,
) -> tuple[int, Correlation, Correlation]:
    """How many classes, and how the gradients [P] of their samples are correlated: cross-entropy, distillation."""
    present = [c for c in range(classes) if bool((targets == c).any())]
    most = max(2, _MEMORY // (2 * parameters * inputs.element_size()))
    if len(present) > most:
        present = sorted(generator(seed, Stream.ANALYSIS, 5).choice(present, most, replace=False).tolist())
    table = inputs.new_empty(2, len(present), parameters)
    for number, c in enumerate(present):
        own = targets == c
        table[0, number], table[1, number] = gradients(inputs[own], targets[own])
        tell("gradients of classes", number + 1, len(present))
    return len(present), correlation(table[0]), correlation(table[1])


def correlation(rows: Tensor) -> Correlation:
    """Of gradients [C, P]."""
    products = (rows @ rows.T).double()
    squares = products.diagonal()
    if len(rows) < 2 or not bool((squares > 0).all()):
        return Correlation(None, None, None)  # one class, or one without a gradient
    other = ~torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    norms = squares.sqrt()
    cosine = (products / norms / norms[:, None]).abs()[other].mean()
    product = (products / squares[:, None]).abs()[other].mean()
    return Correlation(float(cosine), float(product), float(norms.max() / norms.min()))


def _text(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"

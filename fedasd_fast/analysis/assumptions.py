"""Checks the assumptions behind the paper's proposition "lambda >= lambda_c lowers G_d" on a run.

- Label distributions differ: c_n > c_d (its lemma 2), with c_n = K sum_kc p_kc^2 and c_d = sum_c (sum_k p_kc)^2.
- All clients have the same classes: only then does 1 / p_kc exist for all, and a_n = a_d.  In general
  a_n = K sum_k |S_k| and a_d = sum_kl |S_k and S_l|, so that G_d falls to a_n / a_d >= 1 at best.
- Gradients of different classes are weakly correlated and of similar magnitude.  The inequality printed in the paper
  has the wrong direction; its proof drops the products of different classes, so it needs |g_c . g_m| << ||g_c||^2.
- Then a and b in the expansion of G_d are equal in numerator and denominator; the six measured numbers show how far
  that holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..common.formatting import format_significant
from ..common.progress import ProgressFunction, no_progress
from ..common.randomness import Stream, generator
from .dissimilarity_ratio import DissimilarityRatio

_GRADIENT_MEMORY = 10**9  # bytes for the gradients of all classes; if they need more, some classes are drawn


@dataclass(frozen=True)
class GradientCorrelation:
    """Correlation of the gradients of different classes."""

    cosine: float | None  # mean of |cos| over pairs; assumed: far below 1
    product: float | None  # mean of |g_c . g_m| / ||g_c||^2; assumed: far below 1
    magnitudes: float | None  # largest over smallest norm; assumed: about 1


@dataclass(frozen=True)
class Assumptions:
    label_ratio: float  # c_n / c_d; above 1: the label distributions of clients differ
    support_ratio: float  # a_n / a_d; 1: all clients have the same classes
    classes: int  # whose gradients are compared
    ce: GradientCorrelation
    asd: GradientCorrelation

    def lines(self, ratio: DissimilarityRatio) -> list[str]:
        n, d = ratio.above, ratio.below
        b = f"{n.b / d.b:.3g}" if d.b else "undefined"
        a = f"{n.a / d.a:.3g}" if d.a else "undefined"
        ce, asd = self.ce, self.asd
        return [
            "  the proposition assumes:",
            f"    label distributions of clients differ    c_n/c_d = {self.label_ratio:.3g} (expected: above 1)",
            f"    clients have the same classes            a_n/a_d = {self.support_ratio:.3g} (expected: 1)",
            f"    gradients of classes are uncorrelated    mean |cos| {_text(ce.cosine)} for cross-entropy, "
            f"{_text(asd.cosine)} for distillation (expected: near 0)",
            f"    and of similar magnitude                 largest/smallest {_text(ce.magnitudes)} and "
            f"{_text(asd.magnitudes)} (expected: near 1)",
            f"    so that a and b cancel                   measured: a {a}, b {b} (expected: 1)",
        ]


def label_ratios(proportions: Tensor) -> tuple[float, float]:
    """c_n / c_d and a_n / a_d from the clients' label proportions [K, C]."""

    def ratio(values: Tensor) -> float:
        return float(len(values) * (values**2).sum() / (values.sum(0) ** 2).sum())

    return ratio(proportions), ratio((proportions > 0).to(proportions.dtype))


def class_gradients(
    inputs: Tensor,
    targets: Tensor,
    classes: int,
    parameters: int,
    gradients: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    seed: int,
    progress: ProgressFunction = no_progress,
) -> tuple[int, GradientCorrelation, GradientCorrelation]:
    """The number of classes, and the correlation of their gradients [P]: of cross-entropy, and of distillation."""
    present = [c for c in range(classes) if bool((targets == c).any())]
    affordable = max(2, _GRADIENT_MEMORY // (2 * parameters * inputs.element_size()))
    if len(present) > affordable:
        present = sorted(generator(seed, Stream.ANALYSIS, 5).choice(present, affordable, replace=False).tolist())
    table = inputs.new_empty(2, len(present), parameters)
    for number, c in enumerate(present):
        own = targets == c
        table[0, number], table[1, number] = gradients(inputs[own], targets[own])
        progress("gradients of classes", number + 1, len(present))
    return len(present), gradient_correlation(table[0]), gradient_correlation(table[1])


def gradient_correlation(rows: Tensor) -> GradientCorrelation:
    """`rows` [C, P] are the gradients."""
    products = (rows @ rows.T).double()
    squares = products.diagonal()
    if len(rows) < 2 or not bool((squares > 0).all()):
        return GradientCorrelation(None, None, None)  # one class, or one without a gradient
    other = ~torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    norms = squares.sqrt()
    cosine = (products / norms / norms[:, None]).abs()[other].mean()
    product = (products / squares[:, None]).abs()[other].mean()
    return GradientCorrelation(float(cosine), float(product), float(norms.max() / norms.min()))


def _text(value: float | None) -> str:
    return format_significant(value, 3, missing="unknown")

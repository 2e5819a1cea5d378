"""Sums that do not depend on the order of their terms.

Floating-point addition is not associative, so a sum over clients would depend on which worker finished first.  Terms
are rounded once to multiples of 2^-44 and added as integers, which is exact.  2^-44 = 6e-14 is finer than float32 for
every parameter above 1e-6, and the range left, +-2^19, is far beyond what a trained parameter reaches: values over
LIMIT mean that training has diverged, and are refused before they are added.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...kernels import loader
from ...kernels.update_checks import check_accumulation

_SCALE = 2.0**44
LIMIT = 2.0**17


def to_fixed(values: Tensor, weight: float) -> Tensor:
    """weight * values as int64; weights of one sum must not exceed 1 together."""
    return (values.double() * (weight * _SCALE)).round_().long()


def accumulate(
    total: Tensor, values: Tensor, weights: float | Sequence[float], *, implementation: str = "auto"
) -> None:
    """total += to_fixed(values, weight), in place and in one pass; with values [K, P] and K weights, of each row.

    The compiled kernel gives the reference's very integers.
    """
    weights = [weights] if isinstance(weights, (int, float)) else list(weights)
    if loader.use_fused(implementation, values):
        op = torch.ops.fedasd.accumulate_.default if torch.compiler.is_compiling() else loader.module.accumulate_
        op(total, values, weights)
        return
    check_accumulation(total, values, weights)
    for row, weight in zip(values.unsqueeze(0) if values.dim() == 1 else values, weights, strict=True):
        total += to_fixed(row, weight)


def to_float(total: Tensor) -> Tensor:
    return total.double().div_(_SCALE)


def in_range(values: Tensor) -> bool:
    return bool(values.abs().max() < LIMIT)  # false for NaN too


def zeros(size: int, device: torch.device) -> Tensor:
    return torch.zeros(size, dtype=torch.int64, device=device)

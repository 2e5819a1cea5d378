"""Sums that do not depend on the order of their terms.

Floating-point addition is not associative, so a sum over clients would depend on which worker finished first.  Terms
are rounded once to multiples of 2^-44 and added as integers, which is exact.  2^-44 = 6e-14 is finer than float32 for
every parameter above 1e-6, and the range left, +-2^19, is far beyond what a trained parameter reaches: values over
LIMIT mean that training has diverged, and are refused before they are added.
"""

from __future__ import annotations

import torch
from torch import Tensor

_SCALE = 2.0**44
LIMIT = 2.0**17


def to_fixed(values: Tensor, weight: float) -> Tensor:
    """weight * values as int64; weights of one sum must not exceed 1 together."""
    return (values.double() * (weight * _SCALE)).round_().long()


def to_float(total: Tensor) -> Tensor:
    return total.double().div_(_SCALE)


def in_range(values: Tensor) -> bool:
    return bool(values.abs().max() < LIMIT)  # false for NaN too


def zeros(size: int, device: torch.device) -> Tensor:
    return torch.zeros(size, dtype=torch.int64, device=device)

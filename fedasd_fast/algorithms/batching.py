"""Hooks of a method that take all clients of a cohort in one call."""

from __future__ import annotations

import torch
from torch import Tensor

from .base import Method

_HOOKS = ("correction", "finish")


def is_batched(method: Method) -> bool:
    """Whether `correction` and `finish` take K clients at once.  A class says so by `batched`, for the hooks that it
    has or inherits: a subclass that replaces one of them must say it again."""
    order = type(method).__mro__
    said = next(number for number, cls in enumerate(order) if "batched" in vars(cls))
    defined = [next(number for number, cls in enumerate(order) if hook in vars(cls)) for hook in _HOOKS]
    return method.batched and said <= min(defined)


def quotient(number: float, by: float | Tensor) -> float | Tensor:
    """number / by, of one client or of K.  For a tensor torch's own operator multiplies by the reciprocal, which rounds
    differently."""
    return torch.full_like(by, number) / by if isinstance(by, Tensor) else number / by


def as_factor(number: float | Tensor, of: Tensor) -> float | Tensor:
    """A number for each of K clients [K, 1] as a factor of their vectors, rounded to their dtype as torch rounds a
    single number: so K clients at once have the bits that each has alone."""
    return number.to(of.dtype) if isinstance(number, Tensor) else number

"""TF32: products and convolutions of float32 numbers on a GPU, computed with ten bits of each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_cudnn: Any = torch.backends.cudnn  # a module that torch replaces by an object
_OPERATIONS: tuple[Any, ...] = (torch.backends.cuda.matmul, _cudnn.conv, _cudnn.rnn)


@contextmanager
def tf32(allowed: bool | None) -> Iterator[None]:
    """None: as the caller set torch, whose own default is TF32 for convolutions only."""
    if allowed is None:
        yield
        return
    before = [operation.fp32_precision for operation in _OPERATIONS]
    try:
        for operation in _OPERATIONS:
            operation.fp32_precision = "tf32" if allowed else "ieee"
        yield
    finally:
        for operation, precision in zip(_OPERATIONS, before, strict=True):
            operation.fp32_precision = precision

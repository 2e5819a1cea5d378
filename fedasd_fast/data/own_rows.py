"""One sample after the other, stacked to a tensor: numbers, arrays, tensors or PIL images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

_IMAGE_MODES = ("L", "RGB", "RGBA")


def stack(values: Sequence[Any], where: str) -> Tensor:
    """[n, ...]; PIL images become uint8 [n, C, H, W].  All must have the same shape."""
    rows = [_row(value, where) for value in values]
    for number, row in enumerate(rows):
        if row.shape != rows[0].shape:
            raise ValueError(
                f"{where} {number} has shape {tuple(row.shape)}, {where} 0 {tuple(rows[0].shape)}; expected the same "
                "of all: resize or crop them first"
            )
    return torch.stack(rows) if rows else torch.empty(0)


def _row(value: Any, where: str) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach()
    if hasattr(value, "getbands"):  # a PIL image
        if value.mode not in _IMAGE_MODES:
            raise ValueError(
                f"{where}: images of mode {value.mode!r}; expected {', '.join(_IMAGE_MODES)}: call .convert('RGB')"
            )
        pixels = np.array(value)
        return torch.from_numpy(pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1)))
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{where}: {type(value).__name__} is no number, array or image: {error}") from None

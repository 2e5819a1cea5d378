"""Normalisation and augmentation of whole batches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .host_to_device import send

Array: TypeAlias = np.ndarray[Any, Any]


def to_float(
    inputs: Tensor, mean: Sequence[float] | None, std: Sequence[float] | None, dtype: torch.dtype = torch.float32
) -> Tensor:
    """uint8 images [n, C, H, W] as (x / 255 - mean) / std, with mean and std of each channel; floats are only cast,
    and token ids (int64) stay as they are."""
    if inputs.dtype == torch.int64:
        return inputs
    if inputs.dtype != torch.uint8:
        return inputs.to(dtype)
    x = inputs.to(dtype)
    if mean is None or std is None:
        return x.div_(255)
    scale, shift = _scale_and_shift(tuple(mean), tuple(std), dtype, x.device)
    return x.mul_(scale).sub_(shift)


@lru_cache(maxsize=16)  # otherwise every client would wait for two small copies to the device
def _scale_and_shift(
    mean: tuple[float, ...], std: tuple[float, ...], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    with torch.inference_mode(False):  # evaluation may be the first to call this
        deviation = torch.tensor(std, dtype=torch.float64)
        both = (deviation * 255).reciprocal_(), torch.tensor(mean, dtype=torch.float64) / deviation
        scale, shift = (values.to(device, dtype).view(-1, 1, 1) for values in both)
    return scale, shift


def augment(inputs: Tensor, rng: np.random.Generator, pad: int = 4) -> Tensor:
    """A new batch: each image mirrored or not, and shifted by up to `pad` pixels or not, each with probability 1/2.

    A shifted image is padded with zeros on all sides and cropped to its size at an offset uniform in {0 .. 2 pad}^2.
    Images are normalised before, so the zeros have the mean colour.
    """
    if inputs.dim() != 4 or not inputs.is_floating_point():
        raise ValueError(
            f"augmentation needs floating point images [n, C, H, W], but got {inputs.dtype} of shape "
            f"{tuple(inputs.shape)}; convert uint8 images with to_float first, and set augment: none for other inputs"
        )
    n, channels, height, width = inputs.shape
    # Only three numbers for each image are sent; the positions of its pixels are computed on the device.
    drawn = send(torch.from_numpy(np.stack(draw(n, rng, pad)).astype(np.int64, copy=False)), inputs.device)
    mirrored, top, left = drawn.unsqueeze(-1)  # [n, 1] each
    rows = top + torch.arange(height, device=inputs.device)  # [n, H], in the padded image
    columns = left + torch.arange(width, device=inputs.device)
    padded_width = width + 2 * pad
    columns = torch.where(mirrored > 0, padded_width - 1 - columns, columns)
    pixels = rows.unsqueeze(2) * padded_width + columns.unsqueeze(1)
    padded = F.pad(inputs, (pad, pad, pad, pad)).flatten(2)
    return padded.gather(2, pixels.view(n, 1, -1).expand(-1, channels, -1)).view_as(inputs)


def draw(n: int, rng: np.random.Generator, pad: int) -> tuple[Array, Array, Array]:
    """For each image: whether it is mirrored, and the offset (top, left) of its crop; (pad, pad) is no shift."""
    mirrored = rng.random(n) < 0.5
    shifted = rng.random(n) < 0.5
    offsets = rng.integers(0, 2 * pad + 1, size=(n, 2))
    offsets[~shifted] = pad
    return mirrored, offsets[:, 0], offsets[:, 1]

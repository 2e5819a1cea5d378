"""Decodes image files into one uint8 array [n, 3, size, size], in several threads (Pillow releases the GIL)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..common.schema import ConfigError
from .archives import Files
from .reader import Array, DataError, DecodeContext, import_optional

IMAGE_EXTENSIONS = (".jpeg", ".jpg", ".png", ".bmp", ".ppm", ".webp")
IMAGE_FORMATS = ("JPEG", "PNG", "BMP", "PPM", "WEBP")
BLOCK_IMAGES = 64  # decoded by a thread at a time


@dataclass(frozen=True)
class ImageOptions:
    path: str | None = None
    image_size: int = 64

    def __post_init__(self) -> None:
        if not 1 <= self.image_size <= 4096:
            raise ConfigError(f"dataset_args.image_size = {self.image_size}; expected 1 .. 4096 pixels")


def is_image(name: str) -> bool:
    return name.lower().endswith(IMAGE_EXTENSIONS)


def decode_all(files: Files, splits: dict[str, Sequence[str]], size: int, context: DecodeContext) -> dict[str, Array]:
    """One array for each split, with the named files in order."""
    pillow = import_optional("PIL.Image")
    arrays = {split: context.allocate(split, (len(names), 3, size, size)) for split, names in splits.items()}
    blocks = [(split, start) for split, names in splits.items() for start in range(0, len(names), BLOCK_IMAGES)]
    total, done = sum(map(len, splits.values())), 0

    def decode_block(block: tuple[str, int]) -> int:
        split, start = block
        names = splits[split][start : start + BLOCK_IMAGES]
        for row, name in enumerate(names, start):
            arrays[split][row] = decode(files.read(name), size, files.where(name), pillow)
        return len(names)

    with ThreadPoolExecutor() as pool:
        try:
            for count in pool.map(decode_block, blocks):
                done += count
                if context.progress:
                    context.progress(done, total)
        except BaseException:
            pool.shutdown(cancel_futures=True)  # one bad file: no need to decode the rest first
            raise
    return arrays


def decode(content: bytes, size: int, where: str, pillow: Any) -> Array:
    """RGB (grey images are repeated three times); the shorter side is resized to `size`, then the centre is cropped."""
    try:
        with pillow.open(io.BytesIO(content), formats=IMAGE_FORMATS) as opened:
            image = opened.convert("RGB")
    except Exception as error:  # Pillow's decoders raise nearly any type on damaged files
        raise DataError(f"{where} is not a readable image ({error}); replace or remove it") from None
    width, height = image.size
    if (width, height) != (size, size):
        scale = size / min(width, height)
        width, height = max(size, round(width * scale)), max(size, round(height * scale))
        left, top = (width - size) // 2, (height - size) // 2
        image = image.resize((width, height), pillow.Resampling.BILINEAR).crop((left, top, left + size, top + size))
    return np.asarray(image).transpose(2, 0, 1)

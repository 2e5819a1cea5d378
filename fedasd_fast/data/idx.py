"""MNIST and Fashion-MNIST: idx files, gzipped or not, under any of their usual names."""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from typing import Any

import numpy as np

from .archives import Files
from .reader import Array, DataError, DecodeContext, DecodedArrays, check_labels

MAX_IDX_BYTES = 1 << 28  # unpacked; the published training images have 47e6


def read_idx(files: Files, options: Any, context: DecodeContext) -> DecodedArrays:
    return DecodedArrays(*_split(files, "train"), *_split(files, "t10k"), num_classes=10)


def _split(files: Files, split: str) -> tuple[Array, Array]:
    x, where = _file(files, f"{split}-images", 3)
    y, where_labels = _file(files, f"{split}-labels", 1)
    if len(x) != len(y):
        raise DataError(f"{where} has {len(x)} images, but {where_labels} has {len(y)} labels; download both again")
    check_labels(y, 10, where_labels)
    return x[:, None], y.astype(np.int64)


def _file(files: Files, stem: str, dimensions: int) -> tuple[Array, str]:
    usual = f"{stem}-idx{dimensions}-ubyte"
    spellings = [f"{stem}{dot}idx{dimensions}-ubyte{end}" for end in ("", ".gz") for dot in "-."]
    name = next((name for name in spellings if name in files.names), usual + ".gz")
    content, where = files.read(name), files.where(name)
    if name.endswith(".gz"):
        try:
            content = _unpacked(content, where)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{where} is damaged or incomplete ({error}); delete it and download it again") from None
    return parse(content, dimensions, where), where


def _unpacked(content: bytes, where: str) -> bytes:
    """A small gzip file can stand for a huge one: no more is unpacked than such a file can have."""
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
        unpacked = stream.read(MAX_IDX_BYTES + 1)
    if len(unpacked) > MAX_IDX_BYTES:
        raise DataError(f"{where} unpacks to more than {MAX_IDX_BYTES:,} bytes; it is not the published file")
    return unpacked


def parse(content: bytes, dimensions: int, where: str) -> Array:
    """Two zero bytes, 8 for unsigned bytes, the number of dimensions; the size of each as 4 bytes; then the values."""
    header = 4 + 4 * dimensions
    magic = bytes([0, 0, 8, dimensions])
    if len(content) < header or content[:4] != magic:
        raise DataError(f"{where} begins with {content[:4].hex()!r}; expected {magic.hex()!r}: it is not this idx file")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    expected = int(np.prod(shape, dtype=object))
    if len(content) - header != expected:
        raise DataError(
            f"{where} has {len(content) - header} values; its header says {list(shape)}, which is {expected}: "
            "it is damaged or incomplete; delete it and download it again"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)

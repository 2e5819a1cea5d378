"""CIFAR-10 and CIFAR-100 as published, in both formats: Python pickles and binary records."""

from __future__ import annotations

from typing import Any

import numpy as np

from .archives import Files
from .cifar_pickle import load
from .reader import Array, DataError, DecodeContext, DecodedArrays, check_labels

PIXELS = 3 * 32 * 32
BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))


def read_cifar10(files: Files, options: Any, context: DecodeContext) -> DecodedArrays:
    return _read(files, 10, BATCHES, "test_batch", "labels", label_bytes=1)


def read_cifar100(files: Files, options: Any, context: DecodeContext) -> DecodedArrays:
    return _read(files, 100, ("train",), "test", "fine_labels", label_bytes=2)


def _read(
    files: Files, classes: int, train: tuple[str, ...], test: str, labels: str, label_bytes: int
) -> DecodedArrays:
    binary = any(name.endswith(".bin") for name in files.names)

    def one(name: str) -> tuple[Array, Array]:
        if binary:
            x, y = _records(files.read(f"{name}.bin"), label_bytes, files.where(f"{name}.bin"))
        else:
            x, y = _pickled(files.read(name), labels, files.where(name))
        check_labels(y, classes, files.where(name))
        return x.reshape(-1, 3, 32, 32), y

    parts = [one(name) for name in train]
    return DecodedArrays(
        np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts]), *one(test), classes
    )


def _pickled(content: bytes, key: str, where: str) -> tuple[Array, Array]:
    batch = load(content, where)
    x, y = batch.get("data"), batch.get(key)
    if not isinstance(x, np.ndarray) or x.ndim != 2 or x.shape[1] != PIXELS:
        shape = getattr(x, "shape", None)
        raise DataError(f"{where} has data of shape {shape}; expected [n, {PIXELS}] bytes: it is not a CIFAR file")
    if not isinstance(y, list) or len(y) != len(x) or not all(type(label) is int for label in y):
        raise DataError(f"{where} has no list {key!r} of {len(x)} labels; it may belong to the other CIFAR dataset")
    return x, np.array(y, np.int64)


def _records(content: bytes, label_bytes: int, where: str) -> tuple[Array, Array]:
    """A record is the label (CIFAR-100: the coarse one, then the fine one), then the pixels."""
    size = label_bytes + PIXELS
    if not content or len(content) % size:
        raise DataError(
            f"{where} has {len(content)} bytes; expected records of {size}: it is incomplete, or from another dataset"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, size)
    return records[:, label_bytes:], records[:, label_bytes - 1].astype(np.int64)

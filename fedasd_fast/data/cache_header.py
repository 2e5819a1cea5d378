"""The header of a cache, checked: it may be damaged, of another version, or made up by somebody else."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..common.files import read_bounded
from .reader import Array, check_labels

_MAX_BYTES = 1 << 20
_MAX_CLASSES = 1 << 24
_ARRAYS = {"train_x", "train_y", "test_x", "test_y"}  # and perhaps users
_ENTRY_TYPES = {"dtype": str, "shape": list, "bytes": int, "time": int, "sha256": str}


def read_header(path: Path, version: int) -> dict[str, Any]:
    """The content of header.json; ValueError or KeyError if it is not one of this version."""
    header = json.loads(read_bounded(path, _MAX_BYTES))
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")
    if header["format"] != version:
        raise ValueError(f"it has format version {header['format']!r:.60}, expected {version}")
    classes, entries, notices = header["num_classes"], header["arrays"], header["notices"]
    if type(classes) is not int or not 1 <= classes <= _MAX_CLASSES:
        raise ValueError(f"its header says num_classes = {classes!r:.60}")
    if not isinstance(notices, list) or not all(isinstance(notice, str) for notice in notices):
        raise ValueError("its header has notices that are no texts")
    for key in ("mean", "std"):
        if header[key] is not None and not _are_numbers(header[key], positive=key == "std"):
            raise ValueError(f"its header says {key} = {header[key]!r:.60}")
    if not isinstance(entries, dict) or entries.keys() - {"users"} != _ARRAYS:
        raise ValueError(f"its header does not list {', '.join(sorted(_ARRAYS))}")
    for name, entry in entries.items():
        if not isinstance(entry, dict) or any(type(entry.get(key)) is not kind for key, kind in _ENTRY_TYPES.items()):
            raise ValueError(f"its header does not describe {name}")
    return header


def check_arrays(arrays: Mapping[str, Array], num_classes: int) -> None:
    """ValueError if inputs, labels and users do not belong together."""
    for split in ("train", "test"):
        x, y = arrays[f"{split}_x"], arrays[f"{split}_y"]
        if y.dtype != np.int64 or y.shape != x.shape[:1] or x.ndim < 2 or x.dtype not in (np.uint8, np.float32):
            raise ValueError(f"{split}_x is {x.dtype} {list(x.shape)}, {split}_y is {y.dtype} {list(y.shape)}")
        check_labels(y, num_classes, f"{split}_y")
    if arrays["train_x"].shape[1:] != arrays["test_x"].shape[1:] or arrays["train_x"].dtype != arrays["test_x"].dtype:
        raise ValueError("train_x and test_x are of different samples")
    users = arrays.get("users")
    if users is not None and (users.dtype != np.int64 or users.shape != arrays["train_y"].shape or users.min() < 0):
        raise ValueError(f"users is {users.dtype} {list(users.shape)}")


def _are_numbers(value: Any, *, positive: bool) -> bool:
    return isinstance(value, list) and all(
        type(number) in (int, float) and abs(number) < 1e9 and math.isfinite(number) and (number > 0 or not positive)
        for number in value
    )

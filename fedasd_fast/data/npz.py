"""The user's own data in one .npz file, optionally with user ids (for instance FEMNIST).

    train_x, test_x    uint8 [n, H, W] or [n, C, H, W] images with C = 1 or 3, or floats [n, ...] (features)
    train_y, test_y    whole numbers [n], classes 0 .. num_classes - 1
    train_users        optional, [n]: the user of each training sample, a number or a string; for `partition: natural`
    num_classes        optional: a number; otherwise the largest label + 1
    mean, std          optional, images only: of each channel, of values in [0, 1]; otherwise of the training images

Make one with numpy.savez(path, train_x=..., ...).  Pickled objects inside are refused.  Users are numbered in sorted
order.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..common.schema import nearest
from .archives import Files
from .reader import Array, DataError, DecodeContext, DecodedArrays, check_labels

REQUIRED_ARRAYS = ("train_x", "train_y", "test_x", "test_y")
OPTIONAL_ARRAYS = ("train_users", "num_classes", "mean", "std")


@dataclass(frozen=True)
class PathOptions:
    path: str | None = None  # of the data, in data_dir or absolute


def read_npz(files: Files, options: Any, context: DecodeContext) -> DecodedArrays:
    where = str(files.path)
    content = _content(files)
    for name in content:
        if name not in REQUIRED_ARRAYS + OPTIONAL_ARRAYS:
            raise DataError(f"{where} has an unknown array {name}{nearest(name, REQUIRED_ARRAYS + OPTIONAL_ARRAYS)}")
    for name in REQUIRED_ARRAYS:
        if name not in content:
            raise DataError(f"{where} has no array {name}; expected {', '.join(REQUIRED_ARRAYS)}")
    train_x, test_x = (_inputs(content[name], f"{where}: {name}") for name in ("train_x", "test_x"))
    train_y, test_y = (_labels(content[name], f"{where}: {name}") for name in ("train_y", "test_y"))
    for split, x, y in (("train", train_x, train_y), ("test", test_x, test_y)):
        if len(x) != len(y) or not len(x):
            raise DataError(
                f"{where} has {len(x)} {split}_x and {len(y)} {split}_y; expected the same number of both, and not 0"
            )
    if train_x.shape[1:] != test_x.shape[1:] or train_x.dtype != test_x.dtype:
        raise DataError(
            f"{where}: train_x is {train_x.dtype} {train_x.shape[1:]}, test_x {test_x.dtype} {test_x.shape[1:]}"
        )
    classes = int(content.get("num_classes", max(train_y.max(), test_y.max()) + 1))
    check_labels(train_y, classes, f"{where}: train_y")
    check_labels(test_y, classes, f"{where}: test_y")
    mean, std = _normalisation(content, train_x, where)
    users = _users(content.get("train_users"), len(train_y), where)
    return DecodedArrays(train_x, train_y, test_x, test_y, classes, mean, std, users)


def _content(files: Files) -> dict[str, Array]:
    try:
        with open(files.path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zlib.error, zipfile.BadZipFile) as error:
        raise DataError(f"{files.path} is not a readable .npz file of plain arrays: {error}") from None


def _inputs(x: Array, where: str) -> Array:
    if x.dtype == np.uint8 and x.ndim == 3:
        x = x[:, None]
    if x.dtype == np.uint8 and x.ndim == 4 and x.shape[1] in (1, 3):
        return x
    if x.dtype.kind == "f" and x.ndim >= 2:
        if not np.isfinite(x).all():
            raise DataError(f"{where} has NaN or infinite values; remove or replace them")
        return x.astype(np.float32, copy=False)
    raise DataError(
        f"{where} is {x.dtype} {list(x.shape)}; expected uint8 [n, H, W] or [n, C, H, W] with C = 1 or 3 (from "
        "[n, H, W, C]: x.transpose(0, 3, 1, 2)), or floats [n, ...]"
    )


def _labels(y: Array, where: str) -> Array:
    if y.dtype.kind not in "iu" or y.ndim != 1:
        raise DataError(f"{where} is {y.dtype} {list(y.shape)}; expected whole numbers [n]")
    return y.astype(np.int64)


def _users(users: Array | None, n: int, where: str) -> Array | None:
    if users is None:
        return None
    if users.shape != (n,) or users.dtype.kind not in "iuUS":
        raise DataError(f"{where}: train_users is {users.dtype} {list(users.shape)}; expected {n} numbers or strings")
    return np.unique(users, return_inverse=True)[1].astype(np.int64).reshape(-1)


def _normalisation(
    content: dict[str, Array], x: Array, where: str
) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    if ("mean" in content) != ("std" in content):
        raise DataError(f"{where} has only one of mean and std; give both, or neither")
    if x.dtype != np.uint8:
        if "mean" in content:
            raise DataError(
                f"{where} has mean and std, but its inputs are not images; normalise features before saving them"
            )
        return None, None
    if "mean" not in content:
        return channel_statistics(x)
    mean, std = (tuple(float(v) for v in content[name].reshape(-1)) for name in ("mean", "std"))
    if not len(mean) == len(std) == x.shape[1] or not all(map(math.isfinite, mean + std)) or min(std) <= 0:
        raise DataError(f"{where}: mean = {mean}, std = {std}; expected {x.shape[1]} numbers each, std positive")
    return mean, std


def channel_statistics(x: Array) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of uint8 images, exactly, from counts of the 256 values."""
    values = np.arange(256) / 255
    means, stds = [], []
    for channel in range(x.shape[1]):
        proportion = np.bincount(x[:, channel].reshape(-1), minlength=256) / x[:, channel].size
        mean = float(proportion @ values)
        means.append(mean)
        stds.append(float(proportion @ (values - mean) ** 2) ** 0.5 or 1.0)  # a constant channel is not scaled
    return tuple(means), tuple(stds)

"""What dataset readers share: the arrays that they return, the context that they run in, and their error class."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..common.errors import ExpectedError

Array = np.ndarray[Any, np.dtype[Any]]
Progress = Callable[[int, int], None]  # done, total


class DataError(ExpectedError, ValueError):
    """A damaged or unexpected file; the message names the file and the remedy."""


@dataclass(frozen=True)
class DecodedArrays:
    """A dataset as numpy arrays, before it becomes a `Dataset`."""

    train_x: Array  # uint8 [n, C, H, W], float32 [n, ...], or int64 [n, T]
    train_y: Array  # int64 [n], or [n, T]
    test_x: Array
    test_y: Array
    num_classes: int
    mean: tuple[float, ...] | None = None  # if the file gives them; None: those of the catalogue
    std: tuple[float, ...] | None = None
    users: Array | None = None  # int64 [n_train]
    notices: tuple[str, ...] = ()  # what is unusual about this copy: shown to the user as warnings

    def named(self) -> dict[str, Array]:
        arrays = {"train_x": self.train_x, "train_y": self.train_y, "test_x": self.test_x, "test_y": self.test_y}
        return arrays if self.users is None else {**arrays, "users": self.users}


@dataclass(frozen=True)
class DecodeContext:
    """Where a reader allocates large arrays (in the files of the cache, so that they take no memory) and reports to."""

    allocate: Callable[[str, tuple[int, ...]], Array] = lambda name, shape: np.empty(shape, np.uint8)
    progress: Progress | None = None


def check_labels(labels: Array, num_classes: int, where: str) -> None:
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < num_classes:
        raise DataError(
            f"{where} has labels {labels.min()} .. {labels.max()}; expected 0 .. {num_classes - 1}: "
            "the file is damaged, or from another dataset"
        )


def import_optional(module: str) -> Any:
    """A module of the `simulation` extra, imported only when a dataset needs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{module} is needed here ({error}); install it with: pip install 'fedasd-fast[simulation]'"
        ) from None

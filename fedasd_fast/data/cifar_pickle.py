"""Restricted unpickler for CIFAR files: plain values and uint8 arrays, anything else is refused.

A pickle can name any function to be called.  Here nothing that a file names is imported: the few names that the pickle
of an array uses are mapped to the functions below.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from .reader import Array, DataError


class _UInt8Dtype:
    """In place of numpy.dtype: uint8 is the only type."""

    def __init__(self, code: bytes | str, *_: Any) -> None:
        if code not in ("u1", b"u1", "uint8", b"uint8"):
            raise ValueError(f"an array of type {code!r}; expected uint8")

    def __setstate__(self, state: Any) -> None:
        pass


class _PickledArray:
    """In place of numpy.ndarray; `array` is set when the pickle passes the bytes."""

    array: Array

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _UInt8Dtype) or not isinstance(raw, bytes):
            raise ValueError("an array that is not of bytes")
        self.array = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran else "C")


def _reconstruct(*_: Any) -> _PickledArray:
    return _PickledArray()


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise ValueError(f"text encoded as {encoding!r}; expected latin1")
    return text.encode("latin1")


ALLOWED_GLOBALS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _PickledArray,
    ("numpy", "dtype"): _UInt8Dtype,
    ("_codecs", "encode"): _encode,  # how Python 3 writes bytes in the old protocols
}


class _CifarUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED_GLOBALS:
            raise _ForbiddenGlobal(f"{module}.{name}")
        return ALLOWED_GLOBALS[module, name]


class _ForbiddenGlobal(Exception):
    pass


def load(content: bytes, where: str) -> dict[str, Any]:
    """The dictionary in a CIFAR file, with strings as keys and numpy arrays as values."""
    try:
        value = _CifarUnpickler(io.BytesIO(content), encoding="bytes").load()
    except _ForbiddenGlobal as error:
        raise DataError(
            f"{where} refers to {error}, which a published CIFAR file never does; nothing was run. "
            "Do not trust this file: download it again from its official address"
        ) from None
    except Exception as error:  # a damaged pickle can raise anything
        raise DataError(
            f"{where} is damaged or incomplete ({type(error).__name__}: {error}); delete it and download it again"
        ) from None
    if not isinstance(value, dict):
        raise DataError(f"{where} holds a {type(value).__name__}; expected the dictionary of a CIFAR file")
    text = {key.decode("latin1") if isinstance(key, bytes) else str(key): item for key, item in value.items()}
    return {
        key: getattr(item, "array", None) if isinstance(item, _PickledArray) else item for key, item in text.items()
    }

"""A pickle is a program.  Those of CIFAR (plain values and uint8 arrays) are read here, anything else is refused.

Nothing a file names is ever imported: the few names that an array's pickle uses stand for the functions below.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from .reader import Array, DataError


class _UInt8:
    """In the place of numpy.dtype: there is only one."""

    def __init__(self, code: bytes | str, *_: Any) -> None:
        if code not in ("u1", b"u1", "uint8", b"uint8"):
            raise ValueError(f"an array of type {code!r}; expected uint8")

    def __setstate__(self, state: Any) -> None:
        pass


class _Array:
    """In the place of numpy.ndarray; `array` is set when the pickle hands over the bytes."""

    array: Array

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _UInt8) or not isinstance(raw, bytes):
            raise ValueError("an array that is not of bytes")
        self.array = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran else "C")


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise ValueError(f"text encoded as {encoding!r}; expected latin1")
    return text.encode("latin1")


KNOWN: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _UInt8,
    ("_codecs", "encode"): _encode,  # how Python 3 writes bytes in the old protocols
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in KNOWN:
            raise _Forbidden(f"{module}.{name}")
        return KNOWN[module, name]


class _Forbidden(Exception):
    pass


def load(content: bytes, where: str) -> dict[str, Any]:
    """The dictionary in a CIFAR file, with text as keys and numpy arrays as values."""
    try:
        value = _Unpickler(io.BytesIO(content), encoding="bytes").load()
    except _Forbidden as error:
        raise DataError(
            f"{where} wants to use {error}, which a published CIFAR file never does; nothing was run. "
            "Do not trust this file: get it again from its official address"
        ) from None
    except Exception as error:  # a garbled pickle can fail in every way there is
        raise DataError(
            f"{where} is damaged or incomplete ({type(error).__name__}: {error}); delete it and get it again"
        ) from None
    if not isinstance(value, dict):
        raise DataError(f"{where} holds a {type(value).__name__}; expected the dictionary of a CIFAR file")
    text = {key.decode("latin1") if isinstance(key, bytes) else str(key): item for key, item in value.items()}
    return {key: getattr(item, "array", None) if isinstance(item, _Array) else item for key, item in text.items()}

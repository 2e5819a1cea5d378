"""What a callback raises keeps its type, and gets a note: which callback, which method, which round and client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..callbacks import Callback


@contextmanager
def noting(callback: Callback, method: str, when: str) -> Iterator[None]:
    """Notes are shown in tracebacks (Python 3.11 on) and travel from workers and ranks with their error."""
    try:
        yield
    except Exception as error:
        note = f"raised by the callback {type(callback).__name__}.{method}, {when}"
        error.__notes__ = [*notes(error), note]
        raise


def notes(error: BaseException) -> list[str]:
    found: list[str] = getattr(error, "__notes__", [])
    return found


def watches_clients(callback: Callback) -> bool:
    return type(callback).on_client is not Callback.on_client

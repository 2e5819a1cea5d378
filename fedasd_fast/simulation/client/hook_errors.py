"""Errors of a method's hooks, with the name of the method and of the hook."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from ...algorithms import Method


class HookError(RuntimeError):
    """A hook raised, or returned what cannot be used; whoever catches it knows the client and the round."""


@contextmanager
def calling(method: Method, hook: str) -> Iterator[None]:
    """Around the call of a hook."""
    try:
        yield
    except Exception as error:
        raise HookError(f"{type(method).__name__}.{hook}: {type(error).__name__}: {error}") from error


def vector_like(given: object, like: Tensor, name: str) -> Tensor:
    """What a hook gave, which must be a vector like another, or a matrix: torch would stretch a shorter one."""
    if isinstance(given, Tensor) and given.shape == like.shape:
        return given
    found = f"shape {tuple(given.shape)}" if isinstance(given, Tensor) else f"type {type(given).__name__}"
    raise ValueError(f"{name} has {found}; expected a tensor of shape {tuple(like.shape)}")


def reason_of(error: Exception) -> str:
    return str(error) if isinstance(error, HookError) else f"{type(error).__name__}: {error}"

"""Registry of methods, by name or by import path `package.module:Class`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..common.schema import ConfigError, build, nearest
from .base import Method

M = TypeVar("M", bound=type[Method])
_methods: dict[str, type[Method]] = {}


def register(name: str) -> Callable[[M], M]:
    """Registers a method as `name`: `method: name` and `method: name+asd` then work everywhere."""

    def add(cls: M) -> M:
        if not issubclass(cls, Method):
            raise TypeError(f"{cls.__name__} is not a subclass of fedasd_fast.algorithms.Method")
        if name.endswith("+asd") or ":" in name:
            raise ValueError(f"{name!r} cannot be the name of a method: +asd and ':' have a special meaning")
        other = _methods.get(name, cls)
        # A module that is reloaded may register its class again.
        if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"a method called {name!r} already exists: {other.__module__}.{other.__qualname__}")
        _methods[name] = cls
        return cls

    return add


def names() -> list[str]:
    """Of all registered methods, without +asd."""
    return sorted(_methods)


def create(name: str, arguments: Mapping[str, Any]) -> Method:
    """The method `name` with its arguments, which are checked against the fields of its dataclass."""
    cls = _methods.get(name) or (_imported(name) if ":" in name else None)
    if cls is None:
        raise ConfigError(f"method = {name!r} is unknown{nearest(name, names())}")
    if "__dataclass_fields__" not in vars(cls):
        raise ConfigError(f"method = {name!r}: decorate {cls.__name__} with @dataclass(frozen=True)")
    method = build(cls, arguments, "method_args")
    _check_vector_names(name, method)
    return method


def _check_vector_names(name: str, method: Method) -> None:
    """Records and sums are kept by name: of two vectors with one name, one would be lost or both added up."""
    taken = [*method.client_state, *method.sent, "upload"]
    if twice := sorted({vector for vector in taken if taken.count(vector) > 1}):
        raise ConfigError(
            f"method = {name!r}: client_state = {tuple(method.client_state)} and sent = {tuple(method.sent)} have "
            f"{', '.join(twice)} twice, or call a vector upload, as a client's last model is called; rename it"
        )


def _imported(path: str) -> type[Method]:
    module, _, attribute = path.partition(":")
    try:
        cls = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"method = {path!r} cannot be imported: {error}") from None
    if not (isinstance(cls, type) and issubclass(cls, Method)):
        raise ConfigError(f"method = {path!r} is not a subclass of fedasd_fast.algorithms.Method")
    return cls

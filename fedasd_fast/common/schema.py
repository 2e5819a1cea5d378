"""Converts plain data (YAML, `key=value`) to typed dataclasses; errors name the nearest valid key or value."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import math
import re
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from .errors import ExpectedError

T = TypeVar("T")


class ConfigError(ExpectedError, ValueError):
    """An invalid setting; the message names it, what was expected, and the nearest valid name."""


def nearest(word: str, choices: Iterable[str]) -> str:
    """', did you mean ...?' or the choices themselves: the tail of an error message."""
    choices = sorted(choices)
    close = difflib.get_close_matches(word, choices, n=3, cutoff=0.5)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; expected one of {', '.join(choices)}" if choices else ""


def build(cls: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """An instance of a dataclass from a mapping; every field is checked against its annotation."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where or 'the configuration'} = {values!r:.200}; expected a mapping of settings")
    hints = typing.get_type_hints(cls)
    names = [f.name for f in dataclasses.fields(cls) if f.init]  # type: ignore[arg-type]
    prefix = f"{where}." if where else ""
    for key in values:
        if key not in names:
            inner = [name for name in names if key in _field_names(hints[name])]
            meant = f"; did you mean {' or '.join(f'{prefix}{name}.{key}' for name in inner)}?"
            raise ConfigError(f"unknown setting {prefix}{key}{meant if inner else nearest(str(key), names)}")
    return cls(**{key: convert(hints[key], value, prefix + key) for key, value in values.items()})


def convert(hint: Any, value: Any, where: str) -> Any:
    """`value` as the annotation `hint`; only lossless conversions (1 -> 1.0, a list -> a tuple) are made."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        errors = []
        for option in arguments:
            if option is type(None):
                continue
            try:
                return convert(option, value, where)
            except ConfigError as error:
                errors.append(str(error))
        raise ConfigError(errors[0])
    if origin is Literal:
        if value in arguments and type(value) in {type(a) for a in arguments}:
            return value
        raise ConfigError(f"{where} = {value!r}{nearest(str(value), map(str, arguments))}")
    if dataclasses.is_dataclass(hint):
        return value if isinstance(value, hint) else build(hint, value, where)  # type: ignore[arg-type]
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where} = {value!r}; expected a mapping")
        return {str(key): convert(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if origin in (tuple, list):
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"{where} = {value!r}; expected a list")
        return origin(convert(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if hint is float and not isinstance(value, bool):
        with contextlib.suppress(ValueError, TypeError):
            number = float(value)  # YAML 1.1 reads 1e-3 as a string
            if math.isfinite(number):
                return number
        raise ConfigError(f"{where} = {value!r}; expected a finite number")
    if hint is int and (whole := _whole_number(value)) is not None:
        return whole
    if isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    names = {int: "a whole number", bool: "true or false", str: "a string"}
    raise ConfigError(f"{where} = {value!r}; expected {names.get(hint, hint.__name__)}")


def _whole_number(value: Any) -> int | None:
    """1000 for 1000.0 and for 1e3, which YAML 1.1 reads as a string; None for anything else."""
    if isinstance(value, str) and re.fullmatch(r"\d+(\.\d*)?[eE]\+?\d{1,2}", value):
        value = float(value)
    return int(value) if isinstance(value, float) and value.is_integer() else None


def _field_names(hint: Any) -> list[str]:
    return [f.name for f in dataclasses.fields(hint)] if dataclasses.is_dataclass(hint) else []


def plain(value: Any) -> Any:
    """The inverse of `build`: mappings, lists and numbers only, ready for YAML or JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` wins; nested mappings are merged key by key."""
    result = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merge(result[key], value) if both else value
    return result

"""Nested settings by dotted keys: {"asd": {"weight": 3}} and asd.weight=3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .schema import merge


def lookup(settings: Mapping[str, Any], key: str) -> Any:
    """The value of a dotted key; None if there is none."""
    value: Any = settings
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def nest(settings: Mapping[str, Any]) -> dict[str, Any]:
    """{"asd.weight": 3} as {"asd": {"weight": 3}}."""
    result: dict[str, Any] = {}
    for key, value in settings.items():
        for part in reversed(key.split(".")):
            value = {part: value}
        result = merge(result, value)
    return result


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """{"asd": {"weight": 3}} as ("asd.weight", 3)."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def differences(one: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The dotted keys whose values differ, in the order of `one`; those that only `other` has come last."""
    result = []
    for key in dict.fromkeys((*one, *other)):
        a, b = one.get(key), other.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            result += differences(a, b, f"{prefix}{key}.")
        elif a != b:
            result.append(prefix + key)
    return result

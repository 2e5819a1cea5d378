"""fedasd settings: every setting with its type, default and meaning."""

from __future__ import annotations

import argparse
import dataclasses
import textwrap
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, Union

import yaml

from ..common.schema import ConfigError, nearest, plain
from ..settings import Settings
from .setting_meanings import MEANINGS

_TYPE_NAMES = {int: "whole number", float: "number", bool: "true or false", str: "text", type(None): "null"}


class Setting(NamedTuple):
    key: str
    type: str
    default: str
    meaning: str
    choices: tuple[str, ...]  # empty: not one of a few words

    def __str__(self) -> str:
        text = textwrap.fill(self.meaning, 76, initial_indent="    ", subsequent_indent="    ")
        return f"{self.key}={self.default}  ({self.type})\n{text}"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Lists every setting with its default, type and meaning; or those that begin with a key."
    parser.add_argument("key", nargs="?", metavar="KEY", help="a setting (rounds) or a group of them (asd)")
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    known = list(all_settings())
    key = arguments.key
    shown = [s for s in known if key is None or s.key == key or s.key.startswith(f"{key}.")]
    shown = shown or [s for s in known if s.key.endswith(f".{key}")]
    if not shown:
        raise ConfigError(f"there is no setting {key}{nearest(key, [s.key for s in known])}")
    for setting in shown:
        print(setting)
    return 0


def all_settings(cls: type = Settings, prefix: str = "") -> Iterator[Setting]:
    hints, defaults = typing.get_type_hints(cls), cls()
    for field in dataclasses.fields(cls):
        hint, key = hints[field.name], prefix + field.name
        if key == "inputs":  # recorded by a run, not to be set
            continue
        if dataclasses.is_dataclass(hint):
            assert isinstance(hint, type)
            yield from all_settings(hint, f"{key}.")
        else:
            default = _value_text(getattr(defaults, field.name))
            yield Setting(key, _type_text(hint), default, MEANINGS[key], _choices(hint))


def _type_text(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return " | ".join(map(str, arguments))
    if origin in (Union, types.UnionType):
        return " or ".join(map(_type_text, arguments))
    if origin is tuple:
        return f"list of {_type_text(arguments[0])}"
    return "mapping" if origin is dict else _TYPE_NAMES[hint]


def _choices(hint: Any) -> tuple[str, ...]:
    if hint is bool:
        return ("true", "false")
    return tuple(map(str, typing.get_args(hint))) if typing.get_origin(hint) is Literal else ()


def _value_text(value: Any) -> str:
    return yaml.safe_dump(plain(value), default_flow_style=True).removesuffix("\n").removesuffix("\n...").strip()

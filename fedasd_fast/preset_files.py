"""The files of the presets: their names and contents, without torch, so that `fedasd presets` is quick."""

from __future__ import annotations

import copy
import re
from functools import cache
from importlib import resources
from typing import Any

import yaml

from .common.schema import ConfigError, merge, nearest

_FIRST_NAMES = ("quickstart", "digits", "text", "cifar100-500clients")
_FOLDER = resources.files(__package__) / "presets"


def names() -> list[str]:
    """Of all presets, those of the paper's tables in their order."""
    files = (file.name for file in _FOLDER.iterdir())
    found = [name.removesuffix(".yaml") for name in files if name.endswith(".yaml")]
    return sorted(found, key=_sort_key)


def describe(name: str) -> dict[str, Any]:
    """The content of the preset's file, merged with that of its base."""
    return copy.deepcopy(read(name))


@cache
def read(name: str) -> dict[str, Any]:
    """The same, not to be changed."""
    if name not in names():
        longer = [known for known in names() if name and known.startswith(name)]
        meant = f"; did you mean {' or '.join(longer)}?" if longer else nearest(name, names())
        raise ConfigError(f"there is no preset {name!r}{meant}")
    text = (_FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    preset: dict[str, Any] = yaml.safe_load(text)
    return merge(read(preset["base"]), preset) if "base" in preset else preset


def _sort_key(name: str) -> tuple[int, int, str]:
    """Small experiments first, then the tables by their number, then the figures."""
    if name in _FIRST_NAMES:
        return _FIRST_NAMES.index(name), 0, name
    digits = re.search(r"\d+", name)
    return len(_FIRST_NAMES) + name.startswith("fig"), int(digits[0]) if digits else 0, name

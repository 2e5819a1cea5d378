"""What a table spans: its cells, in the order in which they are run.

All runs of one seed share partition and initial model wherever their data settings agree, because both are functions of
the seed alone; so methods are compared on the same clients, from the same start.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .. import presets
from ..common.formatting import pretty
from ..common.schema import ConfigError, merge, nearest
from ..config import Config, parse_overrides

SEEDS = (2024, 2025, 2026)  # three, as in the paper


@dataclass(frozen=True)
class Cell:
    """One number of the table: a value for every axis, and what it is in settings."""

    point: Mapping[str, Any]
    shown: tuple[str, ...]  # axes with several values, beside the method: those that need telling
    config: Config

    @property
    def name(self) -> str:
        """Of its folders; the same whatever part of the grid is run."""
        words = [str(self.point.get("method", "")), *(f"{key}={self.point[key]}" for key in self.shown)]
        return re.sub(r"[^\w.,=+-]", "_", ",".join(word for word in words if word))

    @property
    def label(self) -> str:
        return " ".join([pretty(self.config.method), *(f"{key}={self.point[key]}" for key in self.shown)])

    @property
    def elsewhere(self) -> dict[str, Any]:
        """Its place among the cells that are compared with one another."""
        return {key: value for key, value in self.point.items() if key not in ("method", "asd.weighting")}

    def rival(self) -> dict[str, Any] | None:
        """The point that its gain is counted from: without ASD, or with uniform weights."""
        if self.point.get("asd.weighting") == "adaptive":
            return {**self.point, "asd.weighting": "uniform"}
        if str(self.point.get("method", "")).endswith("+asd") and "asd.weighting" not in self.point:
            return {**self.point, "method": self.config.base_method}
        return None


@dataclass(frozen=True)
class Grid:
    name: str
    axes: Mapping[str, Sequence[Any]]
    cells: Sequence[Cell]

    def folder(self, out: Path, cell: Cell, seed: int) -> Path:
        return out / f"{cell.name}-seed{seed}"

    @property
    def rounds(self) -> int:
        """Of the longest cell."""
        return max(cell.config.rounds for cell in self.cells)

    def runs(self, seeds: Iterable[int]) -> list[tuple[Cell, int]]:
        """All cells of a seed before the next seed: a grid that is stopped early has whole tables."""
        return [(cell, seed) for seed in seeds for cell in self.cells]


def names() -> list[str]:
    return [name for name in presets.names() if presets.describe(name).get("grid")]


def grid(name: str, settings: Sequence[str] = (), only: Sequence[str] = (), **changes: Any) -> Grid:
    """The cells of a preset.  A setting that is an axis of the table takes its place; `only` chooses among values."""
    if name not in names():
        presets.describe(name)  # an unknown name is told from a preset that spans nothing
        raise ConfigError(f"{name} spans nothing; `fedasd reproduce` lists what can be reproduced")
    overrides = merge(parse_overrides(settings), changes)
    axes = {key: list(values) for key, values in presets.describe(name)["grid"].items()}
    shown = tuple(key for key, values in axes.items() if len(values) > 1 and key != "method")
    given = dict(_flat(overrides))
    axes = {key: [given[key]] if key in given else values for key, values in axes.items()}
    wanted = _wanted(only, axes)
    points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    cells = [
        Cell(point, shown, presets.load(name, merge(overrides, presets.nested(point))))
        for point in sorted(points, key=lambda point: _order(point, axes))
        if all(point[key] in values for key, values in wanted.items())
    ]
    return Grid(name, axes, cells)


def _order(point: Mapping[str, Any], axes: Mapping[str, Sequence[Any]]) -> tuple[Any, ...]:
    """Cells that are compared with each other stand together: a method's base and +asd side by side."""
    place = {key: axes[key].index(value) for key, value in point.items()}
    others = [place[key] for key in axes if key not in ("method", "asd.weighting")]
    return *others, place.get("method", 0), place.get("asd.weighting", 0)


def _wanted(only: Sequence[str], axes: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """`fedavg,iid` and `partition=iid` as {axis: values}; a bare word is of the axis that has it."""
    wanted: dict[str, list[Any]] = {}
    for word in only:
        key, equals, text = word.rpartition("=")
        if equals and key not in axes:
            raise ConfigError(f"--only {word}: {key!r} is no axis of this grid{nearest(key, axes)}")
        for part in text.split(","):
            value = _value(part)
            found = [axis for axis in ([key] if equals else axes) if value in axes[axis]]
            if not found:
                choices = [str(v) for axis in ([key] if equals else axes) for v in axes[axis]]
                raise ConfigError(f"--only {word}: nothing in this grid has {part.strip()!r}{nearest(part, choices)}")
            wanted.setdefault(found[0], []).append(value)
    return wanted


def _value(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """{"asd": {"weight": 3}} as ("asd.weight", 3)."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value

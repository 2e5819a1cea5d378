"""Grid of runs behind a table or figure of the paper, in the order in which they are run.

All runs with the same seed and data settings have the same partition and initial model, because both depend on the seed
only; so methods are compared on the same clients, from the same initial model.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import presets
from ..common import dotted, safe_yaml
from ..common.formatting import method_label
from ..common.schema import ConfigError, merge, nearest
from ..config import Config, parse_overrides
from ..simulation.storage.recorded_run import RecordedRun, read_run

DEFAULT_SEEDS = (2024, 2025, 2026)  # three, as in the paper


@dataclass(frozen=True)
class Cell:
    """One number of the table: a value for every axis of the grid, and the resulting configuration."""

    point: Mapping[str, Any]
    shown: tuple[str, ...]  # axes other than the method that have several values: they are part of the label
    config: Config

    @property
    def name(self) -> str:
        """Begins the names of its run directories; the same whichever part of the grid is run."""
        words = [str(self.point.get("method", "")), *(f"{key}={self.point[key]}" for key in self.shown)]
        return re.sub(r"[^\w.,=+-]", "_", ",".join(word for word in words if word))

    @property
    def label(self) -> str:
        return " ".join([method_label(self.config.method), *(f"{key}={self.point[key]}" for key in self.shown)])

    @property
    def comparison_settings(self) -> dict[str, Any]:
        """The point without the method and the weighting: cells that agree in it are compared with each other."""
        return {key: value for key, value in self.point.items() if key not in ("method", "asd.weighting")}

    def baseline_point(self) -> dict[str, Any] | None:
        """The point that its gain is measured against: without ASD, or with uniform weights."""
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

    def run_directory(self, out: Path, cell: Cell, seed: int) -> Path:
        return out / f"{cell.name}-seed{seed}"

    @property
    def rounds(self) -> int:
        """The largest number of rounds of any cell."""
        return max(cell.config.rounds for cell in self.cells)

    def runs(self, seeds: Iterable[int]) -> list[tuple[Cell, int]]:
        """All cells of one seed before the next seed: a grid that is stopped early has complete tables."""
        return [(cell, seed) for seed in seeds for cell in self.cells]

    def existing_runs(self, out: Path, seeds: Iterable[int]) -> dict[tuple[str, int], RecordedRun]:
        """The runs that have begun, by the cell's name and the seed."""
        folders = {(cell.name, seed): self.run_directory(out, cell, seed) for cell, seed in self.runs(seeds)}
        return {key: read_run(folder) for key, folder in folders.items() if (folder / "config.yaml").exists()}


def grid_names() -> list[str]:
    """The presets that have a grid."""
    return [name for name in presets.names() if presets.describe(name).get("grid")]


def load_grid(name: str, settings: Sequence[str] = (), only: Sequence[str] = (), **changes: Any) -> Grid:
    """The grid of a preset.  A setting that is an axis of the grid replaces its values; `only` selects among them."""
    if name not in grid_names():
        presets.describe(name)  # raises another error if there is no such preset
        raise ConfigError(f"{name} has no grid; `fedasd reproduce` lists what can be reproduced")
    overrides = merge(parse_overrides(settings), changes)
    axes = {key: list(values) for key, values in presets.describe(name)["grid"].items()}
    shown = tuple(key for key, values in axes.items() if len(values) > 1 and key != "method")
    given = dict(dotted.flatten(overrides))
    axes = {key: [given[key]] if key in given else values for key, values in axes.items()}
    wanted = _selected_values(only, axes)
    points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    cells = [
        Cell(point, shown, presets.load(name, merge(overrides, dotted.nest(point))))
        for point in sorted(points, key=lambda point: _run_order(point, axes))
        if all(point[key] in values for key, values in wanted.items())
    ]
    return Grid(name, axes, cells)


def _run_order(point: Mapping[str, Any], axes: Mapping[str, Sequence[Any]]) -> tuple[Any, ...]:
    """Cells that are compared with each other are run one after the other: a method, then the same with +asd."""
    place = {key: axes[key].index(value) for key, value in point.items()}
    others = [place[key] for key in axes if key not in ("method", "asd.weighting")]
    return *others, place.get("method", 0), place.get("asd.weighting", 0)


def _selected_values(only: Sequence[str], axes: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """`fedavg,iid` and `partition=iid` as {axis: values}; a bare value belongs to the axis that has it."""
    wanted: dict[str, list[Any]] = {}
    for word in only:
        key, equals, text = word.rpartition("=")
        if equals and key not in axes:
            raise ConfigError(f"--only {word}: {key!r} is not an axis of this grid{nearest(key, axes)}")
        for part in text.split(","):
            value = _parsed(part)
            found = [axis for axis in ([key] if equals else axes) if value in axes[axis]]
            if not found:
                choices = [str(v) for axis in ([key] if equals else axes) for v in axes[axis]]
                raise ConfigError(f"--only {word}: nothing in this grid has {part.strip()!r}{nearest(part, choices)}")
            wanted.setdefault(found[0], []).append(value)
    return wanted


def _parsed(text: str) -> Any:
    try:
        return safe_yaml.load(text, text)
    except ConfigError:
        return text

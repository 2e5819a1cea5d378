"""Runs found in folders, and which of them belong in one picture."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .. import presets
from ..common.formatting import pretty
from ..common.schema import ConfigError
from ..simulation.storage.recorded_run import Run, read, shown_model


@dataclass(frozen=True)
class Broken:
    """A folder that cannot be shown, and why."""

    path: Path
    why: str

    def __str__(self) -> str:
        return self.why if str(self.path) in self.why else f"{self.path}: {self.why}"


@dataclass(frozen=True)
class Experiment:
    """Runs of one name, dataset and partition.  Those with the same label differ in their seed only."""

    title: str
    runs: Sequence[Run]

    @property
    def labels(self) -> list[str]:
        return list(dict.fromkeys(run.label for run in self.runs))

    def of(self, label: str) -> list[Run]:
        return [run for run in self.runs if run.label == label]

    @property
    def expected(self) -> dict[str, presets.Expected]:
        """The paper's number for each label that has one."""
        found = {label: presets.expected(self.of(label)[0].config) for label in self.labels}
        return {label: number for label, number in found.items() if number is not None}

    @property
    def model(self) -> str:
        """The averaged model that is looked at: the paper's, if the runs evaluate it."""
        example = next(iter(self.expected.values()), None)
        return shown_model(self.runs[0].config, example.model if example else "all")


def find(folders: Iterable[str | Path]) -> tuple[list[Run], list[Broken]]:
    """The runs in these folders, at any depth, each once."""
    runs: list[Run] = []
    broken: list[Broken] = []
    seen: set[Path] = set()
    for top in map(Path, folders):
        if not top.is_dir():
            broken.append(Broken(top, "there is no such folder"))
            continue
        found = list(_run_folders(top))
        if not found:
            broken.append(Broken(top, "no run in this folder or below it (no config.yaml)"))
        for folder in found:
            if folder.resolve() in seen:
                continue
            seen.add(folder.resolve())
            try:
                runs.append(_checked(read(folder)))
            except (ConfigError, OSError, ValueError, yaml.YAMLError) as error:
                broken.append(Broken(folder, " ".join(str(error).split())))  # YAML's errors are several lines
    return runs, broken


def _run_folders(top: Path) -> Iterator[Path]:
    for folder, below, files in os.walk(top):
        below.sort()
        if "config.yaml" in files:
            below.clear()  # checkpoints and clients
            yield Path(folder)


def _checked(run: Run) -> Run:
    for number, row in enumerate(run.metrics, 1):
        if not isinstance(row, Mapping) or not isinstance(row.get("round"), int):
            raise ConfigError(f"{run.out}/metrics.jsonl, line {number}, is not a round: {str(row)[:60]}")
    return run


def experiments(runs: Iterable[Run]) -> list[Experiment]:
    groups: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.config.name, run.config.dataset, run.config.partition), []).append(run)
    names = [name for name, _, _ in groups]
    return [
        Experiment(key[0] if names.count(key[0]) == 1 else ", ".join(key), _labelled(groups[key]))
        for key in sorted(groups, key=lambda key: [_natural(word) for word in key])
    ]


def _labelled(runs: Sequence[Run]) -> list[Run]:
    """The method's name, and what differs between runs of that method."""
    result = []
    for method in dict.fromkeys(run.config.method for run in runs):
        same = [run for run in runs if run.config.method == method]
        settings = [run.config.to_dict() for run in same]
        keys = sorted({key for other in settings for key in presets.differences(settings[0], other)})
        for run, values in zip(same, settings, strict=True):
            parts = [pretty(method), *(f"{key}={_value(values, key)}" for key in keys)]
            result.append(dataclasses.replace(run, label=", ".join(parts)))
    return sorted(result, key=lambda run: (_natural(run.label), run.config.seed, str(run.out)))


def _value(settings: Mapping[str, Any], key: str) -> Any:
    value: Any = settings
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _natural(label: str) -> list[tuple[float, str]]:
    """So that 3 comes before 10."""
    words = re.split(r"(\d+(?:\.\d+)?)", label)
    return [(float(word), "") if i % 2 else (math.inf, word) for i, word in enumerate(words)]

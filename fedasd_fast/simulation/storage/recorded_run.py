"""Finished or unfinished runs, read back from their folders."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...common.formatting import pretty
from ...common.schema import ConfigError
from ...config import Config, from_yaml


@dataclass(frozen=True)
class Run:
    """One run; runs with the same label differ in their seed only."""

    label: str
    config: Config
    metrics: Sequence[Mapping[str, Any]] = field(repr=False)
    out: Path | None = None
    versions: Sequence[Mapping[str, Any]] = ()  # what it was made with, each from its "round" on

    @property
    def rounds(self) -> int:
        """How many rounds are done."""
        return int(self.metrics[-1]["round"]) if self.metrics else 0

    @property
    def finished(self) -> bool:
        return self.rounds >= self.config.rounds

    def curve(self, model: str) -> tuple[list[int], list[float]]:
        """Rounds and accuracies, where they were evaluated and are numbers."""
        points = [(int(row["round"]), row.get(f"acc_{model}")) for row in self.metrics]
        kept = [(round, float(value)) for round, value in points if value is not None and math.isfinite(value)]
        return [round for round, _ in kept], [value for _, value in kept]

    def accuracy(self, model: str) -> float | None:
        """At the last evaluation."""
        values = self.curve(model)[1]
        return values[-1] if values else None

    def total(self, key: str) -> float:
        return float(sum(row.get(key) or 0 for row in self.metrics))

    @property
    def seconds(self) -> float:
        """Training and evaluation."""
        return self.total("seconds") + self.total("seconds_eval")

    @property
    def updates_per_second(self) -> float:
        """How many clients a second of training serves."""
        seconds = self.total("seconds")
        return self.total("client_updates") / seconds if seconds else 0.0


def read(folder: str | Path, label: str | None = None) -> Run:
    folder = Path(folder)
    if not (folder / "config.yaml").is_file():
        raise ConfigError(f"{folder} is not the folder of a run: it has no config.yaml")
    config = from_yaml(folder / "config.yaml")
    metrics, versions = (read_rows(folder / name) for name in ("metrics.jsonl", "versions.jsonl"))
    return Run(label or pretty(config.method), config, metrics, folder, versions)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """One object a line.  A last line that is cut off (the run is being written, or was killed) is left out."""
    rows: list[dict[str, Any]] = []
    lines = path.read_text().splitlines() if path.is_file() else []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number < len(lines):
                raise ConfigError(f"{path}, line {number}, is not valid JSON: {error}") from None
    return rows


def shown_model(config: Config, preferred: str = "all") -> str:
    """The averaged model to show: the preferred one if the run evaluates it."""
    return preferred if preferred in config.eval_models else config.eval_models[0]

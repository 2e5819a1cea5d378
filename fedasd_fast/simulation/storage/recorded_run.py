"""Finished and unfinished runs, read back from their run directories."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from ...common import jsonl
from ...common.formatting import method_label
from ...common.schema import ConfigError
from ...config import Config, from_saved_yaml
from .rows import read_rows

Curve: TypeAlias = dict[int, float]  # a number by round


@dataclass(frozen=True)
class RecordedRun:
    """One run; runs with the same label differ in their seed only."""

    label: str
    config: Config
    metrics: Sequence[Mapping[str, Any]] = field(repr=False)
    out: Path | None = None
    versions: Sequence[Mapping[str, Any]] = ()  # of the installation, each from its "round" on
    bad_lines: Sequence[jsonl.BadLine] = ()  # of metrics.jsonl and versions.jsonl: left out

    @property
    def rounds(self) -> int:
        """The number of rounds done."""
        return int(self.metrics[-1]["round"]) if self.metrics else 0

    @property
    def finished(self) -> bool:
        return self.rounds >= self.config.rounds or stopped_at_target(self.config, self.metrics)

    def accuracies(self, model: str) -> Curve:
        """The accuracy (%) of every evaluation that gave a finite number."""
        return self.curve(f"acc_{model}")

    def accuracy(self, model: str) -> float | None:
        """At the last evaluation."""
        return next(reversed(self.accuracies(model).values()), None)

    def curve(self, key: str) -> Curve:
        """A metric by round, where it is a finite number."""
        points = ((int(row["round"]), row.get(key)) for row in self.metrics)
        return {round: float(value) for round, value in points if value is not None and math.isfinite(value)}

    def total(self, key: str) -> float:
        return float(sum(row.get(key) or 0 for row in self.metrics))

    @property
    def seconds(self) -> float:
        """Training and evaluation."""
        return self.total("seconds") + self.total("seconds_eval")

    @property
    def failed_updates(self) -> int:
        """Clients whose training failed and was dropped, counted in every round."""
        return sum(len(row.get("failed") or ()) for row in self.metrics)

    @property
    def updates_per_second(self) -> float:
        """Client updates per second of training."""
        seconds = self.total("seconds")
        return self.total("client_updates") / seconds if seconds else 0.0


def stopped_at_target(config: Config, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether these rounds are all, since the last of them reached the target accuracy."""
    return config.stop_at_target and bool(rows) and rows[-1].get("reached_target") is True


def read_run(folder: str | Path, label: str | None = None) -> RecordedRun:
    folder = Path(folder)
    if not (folder / "config.yaml").is_file():
        raise ConfigError(f"{folder} is not a run directory: it has no config.yaml")
    config = from_saved_yaml(folder / "config.yaml")
    metrics, versions = (read_rows(folder / name) for name in ("metrics.jsonl", "versions.jsonl"))
    bad_lines = (*metrics.bad_lines, *versions.bad_lines)
    return RecordedRun(label or method_label(config.method), config, metrics.rows, folder, versions.rows, bad_lines)

"""Callback that shows the progress of a run."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TextIO

from ..common.durations import format_clock
from ..common.progress import ProgressDisplay
from ..presets import headline_model
from .base import Callback
from .events import Run
from .metrics import Metrics

if TYPE_CHECKING:
    from ..simulation.result import Result


class RoundTime(NamedTuple):
    wall: float  # seconds, with evaluation and checkpoints
    training: float  # seconds
    updates: int


class Progress(Callback):
    """Round, accuracy, client updates per second and the time left.

    In a terminal a live bar; otherwise the first and the last round, and between them one line every `every` seconds.
    """

    def __init__(self, file: TextIO | None = None, every: float = 30.0) -> None:
        self.display = ProgressDisplay(file, every, transient=False)
        self.recent: deque[RoundTime] = deque(maxlen=20)
        self.accuracy = ""
        self.rounds = 0

    def on_start(self, run: Run) -> None:
        self.rounds, self.model = run.config.rounds, headline_model(run.config)
        self.label = f"{run.config.name} {run.config.method}"
        if run.choice:
            print(f"{self.label}: {run.choice}", file=self.display.file, flush=True)
        self.before = time.monotonic()
        self.display.start(self.label, self.rounds)

    def on_round(self, metrics: Metrics) -> None:
        now = time.monotonic()
        wall = now - self.before
        self.recent.append(RoundTime(wall, metrics.get("seconds") or wall, metrics.get("client_updates") or 0))
        self.before = now
        done = metrics["round"]
        self.accuracy = _accuracy(metrics, self.model) or self.accuracy
        parts = [self.accuracy, f"{format_clock(self._left(done))} left", f"{self._speed():.1f} updates/s"]
        detail = "  ".join(part for part in parts if part)
        self.display(self.label, done, self.rounds, count=f"round {done}/{self.rounds}", detail=detail)

    def on_end(self, result: Result) -> None:
        self.close()

    def close(self) -> None:
        """Gives the terminal back; also for runs that end with an error."""
        self.display.close()

    def _speed(self) -> float:
        seconds = sum(round.training for round in self.recent)
        return sum(round.updates for round in self.recent) / seconds if seconds else 0.0

    def _left(self, done: int) -> float:
        return sum(round.wall for round in self.recent) / len(self.recent) * max(0, self.rounds - done)


def _accuracy(metrics: Mapping[str, object], model: str) -> str:
    value = metrics.get(f"acc_{model}")
    return f"{model} {value:.2f} %" if isinstance(value, float) else ""

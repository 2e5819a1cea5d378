"""A live line in a terminal; in a pipe, a plain line every so often."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import Any, NamedTuple, TextIO

from .base import Callback


class Round(NamedTuple):
    wall: float  # seconds, with evaluation and checkpoints
    training: float  # seconds
    updates: int


class Progress(Callback):
    """Round, accuracy, client updates a second and the time that is left.

    In a pipe it prints the first and the last round, and between them one line in `every` seconds.
    """

    def __init__(self, file: TextIO | None = None, every: float = 30.0) -> None:
        self.file = file or sys.stderr
        self.every = every
        self.recent: deque[Round] = deque(maxlen=20)
        self.accuracy = ""
        self.rounds = 0
        self.bar: Any = None

    def on_start(self, run: Any) -> None:
        self.rounds = run.config.rounds
        self.label = f"{run.config.name} {run.config.method}"
        self.printed = -float("inf")
        if run.choice:
            print(f"{self.label}: {run.choice}", file=self.file, flush=True)
        self.before = time.monotonic()
        if self.file.isatty():
            self._start_bar()

    def on_round(self, metrics: dict[str, Any]) -> None:
        now = time.monotonic()
        wall = now - self.before
        self.recent.append(Round(wall, metrics.get("seconds") or wall, metrics.get("client_updates") or 0))
        self.before = now
        done = metrics["round"]
        self.accuracy = _accuracy(metrics) or self.accuracy
        text = f"{self.accuracy:12s} {self._speed():8.1f} updates/s"
        if self.bar is not None:
            self.bar.update(self.task, completed=done, text=text, left=duration(self._left(done)))
        elif now - self.printed >= self.every or done >= self.rounds:
            self.printed = now
            line = f"{self.label}: round {done}/{self.rounds}  {text}  {duration(self._left(done))} left"
            print(line, file=self.file, flush=True)

    def on_end(self, result: Any) -> None:
        self.close()

    def close(self) -> None:
        """Gives the terminal back; also for runs that end with an error."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def _start_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bar

        columns = ("{task.description}", BarColumn(bar_width=30), MofNCompleteColumn(), "{task.fields[text]}")
        left = TextColumn("{task.fields[left]} left")
        self.bar = Bar(*columns, left, console=Console(file=self.file), refresh_per_second=4)
        self.task = self.bar.add_task(self.label, total=self.rounds, text="", left="?")
        self.bar.start()

    def _speed(self) -> float:
        seconds = sum(round.training for round in self.recent)
        return sum(round.updates for round in self.recent) / seconds if seconds else 0.0

    def _left(self, done: int) -> float:
        return sum(round.wall for round in self.recent) / len(self.recent) * max(0, self.rounds - done)


def _accuracy(metrics: dict[str, Any]) -> str:
    for model in ("all", "sel", "cloud"):
        value = metrics.get(f"acc_{model}")
        if value is not None:
            return f"{model} {value:.2f} %"
    return ""


def duration(seconds: float) -> str:
    """1:02:03 or 2:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"

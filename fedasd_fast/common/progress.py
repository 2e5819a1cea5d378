"""Progress of long operations: a live bar in a terminal, otherwise a plain line from time to time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TextIO, TypeAlias

# Called with what is being done, how much of it is done, and the total if that is known.
ProgressFunction: TypeAlias = Callable[[str, int, int | None], None]


def no_progress(task: str, done: int, total: int | None) -> None:
    """The ProgressFunction that shows nothing."""


_MIN_BAR_WIDTH, _MAX_BAR_WIDTH = 8, 30
_TEXT_WIDTH = 60  # of the numbers beside the bar, which goes first where both do not fit


class ProgressDisplay:
    """Shows one task at a time; call it like a ProgressFunction, and `close` it at the end, also after an error.

    Outside a terminal it prints the first and the last step of a task, and between them one line every `every` seconds.
    `transient` bars disappear when they are closed.
    """

    def __init__(self, file: TextIO | None = None, every: float = 30.0, transient: bool = True) -> None:
        self.file = file or sys.stderr
        self.every = every
        self.transient = transient
        self._task = ""
        self._started = self._printed = 0.0
        self._bar: Any = None
        self._bar_width = 0
        self._bar_task: Any = None

    def start(self, task: str, total: int | None) -> None:
        """Shows an empty bar in a terminal, before there is any progress."""
        if self.file.isatty():
            self._update_bar(task, 0, total, "")

    def __call__(self, task: str, done: int, total: int | None, *, count: str = "", detail: str = "") -> None:
        """`count` and `detail` replace "3/10" and the time since the task began.  In a narrow terminal the count goes
        first, then the last parts of the detail, which two spaces separate."""
        now = time.monotonic()
        if task != self._task:
            self._task, self._started, self._printed = task, now, -float("inf")
        count = count or (f"{done}/{total}" if total else f"{done}")
        detail = detail or f"{now - self._started:.0f} s"
        if self.file.isatty():
            self._update_bar(task, done, total, f"{detail}  {count}")
        elif now - self._printed >= self.every or done == total:
            self._printed = now
            print(f"{task}: {count}  {detail}", file=self.file, flush=True)

    def close(self) -> None:
        """Gives the terminal back; may be called more than once."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _update_bar(self, task: str, done: int, total: int | None, text: str) -> None:
        if self._bar is None:
            from rich.console import Console  # here: rich is not needed outside of a terminal
            from rich.progress import BarColumn, Progress, TextColumn

            console = Console(file=self.file)
            self._bar_width = min(_MAX_BAR_WIDTH, console.width - len(task) - _TEXT_WIDTH)
            self._bar_width = self._bar_width if self._bar_width >= _MIN_BAR_WIDTH else 0
            # No markup: names of runs are free text.
            name, numbers = (TextColumn(field, markup=False) for field in ("{task.description}", "{task.fields[text]}"))
            columns = (name, BarColumn(self._bar_width), numbers) if self._bar_width else (name, numbers)
            self._bar = Progress(*columns, console=console, transient=self.transient, refresh_per_second=4)
            self._bar_task = self._bar.add_task(task, total=total, text=text)
            self._bar.start()
        text = _fitted(text, self._bar.console.width - len(task) - self._bar_width - 3)
        self._bar.update(self._bar_task, description=task, total=total, completed=done, text=text)


def _fitted(text: str, width: int) -> str:
    """Without as many of its last parts, which two spaces separate, as do not fit; the first part always stays."""
    while len(text) > width and "  " in text:
        text = text.rpartition("  ")[0].rstrip()
    return text

"""How far an analysis is: in a terminal a line that changes, in a pipe a plain line every so often."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO, TypeAlias

Tell: TypeAlias = Callable[[str, int, int | None], None]  # what, how many are done, of how many if that is known


def silent(what: str, done: int, total: int | None) -> None: ...


class Line:
    def __init__(self, file: TextIO | None = None, every: float = 30.0) -> None:
        self.file = file or sys.stderr
        self.every = every if not self.file.isatty() else 0.2
        self._what, self._began, self._shown = "", 0.0, 0.0

    def __call__(self, what: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if what != self._what:
            self._what, self._began, self._shown = what, now, -float("inf")
        if now - self._shown < self.every and done != total:
            return
        self._shown = now
        text = f"{what}: {done}" + (f"/{total}" if total else "") + f"  {now - self._began:.0f} s"
        if self.file.isatty():
            print(f"\r\x1b[2K{text}", end="", file=self.file, flush=True)
        else:
            print(text, file=self.file, flush=True)

    def close(self) -> None:
        if self._what and self.file.isatty():
            print("\r\x1b[2K", end="", file=self.file, flush=True)

"""Where a contender waits until it is told to train: JSON lines on stdin and stdout.

After every round the contender calls `round_done`.  When the rounds asked for are done it says what they took and
blocks, whatever thread or callback of its framework it is in.  So each framework runs its own loop, started once, and
its start-up is not measured.  The first round warms up; its answer also says which versions are at work.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

ENDLESS = 1_000_000  # rounds, for frameworks that want a number


class Finished(Exception):
    """No more rounds are wanted."""


class Gate:
    def __init__(self, **versions: str) -> None:
        # Frameworks print: what they send to stdout goes to stderr from here on.
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._versions = versions
        self._start(1)

    def _start(self, rounds: int) -> None:
        self._left, self._updates, self._steps = rounds, 0, 0
        self._seconds: list[float] = []
        self._began = time.perf_counter()

    def round_done(self, updates: int, steps: int, loss: Callable[[], float], untimed: float = 0.0) -> None:
        """`loss`: the model's on the test set, called when the clock stands; `untimed` seconds were not training."""
        now = time.perf_counter()
        self._seconds.append(now - self._began - untimed)
        self._updates += updates
        self._steps += steps
        self._left -= 1
        if self._left == 0:
            done = {"seconds": self._seconds, "updates": self._updates, "steps": self._steps, "loss": loss()}
            self.say(done | {"versions": self._versions})
            self._start(self._next())
        else:
            self._began = time.perf_counter()

    def say(self, answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=self._answers, flush=True)

    def _next(self) -> int:
        line = sys.stdin.readline()
        if not line:
            raise Finished
        return int(json.loads(line)["rounds"])

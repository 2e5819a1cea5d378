"""Protocol between harness and contender: JSON lines on stdin and stdout that start rounds and report them.

After every round the contender calls `round_done`.  When the requested rounds are done it reports their times and
blocks, whatever thread or callback of its framework it is in.  So each framework runs its own loop, started once, and
its start-up is not measured.  The first round is for warm-up; its answer also has the versions of the software.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

UNLIMITED_ROUNDS = 1_000_000  # for frameworks that need a number of rounds


class Finished(Exception):
    """No more rounds are requested."""


class RoundGate:
    """Blocks the contender between rounds until the harness requests more."""

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
        """`loss`: the test loss, computed while the clock is stopped; `untimed` seconds were not training."""
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

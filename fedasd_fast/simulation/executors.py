"""How the clients of a round are trained: one small interface, several ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..algorithms import Server
from .cohort import Sums, Task, Workplace, run_client
from .threads import threads


class Executor(Protocol):
    def run(self, server: Server, tasks: Sequence[Task]) -> Sums:
        """Trains the clients of all tasks, in any order."""


class Serial:
    """One client after the other in this process: readable, debuggable, the reference for all others."""

    def __init__(self, place: Workplace) -> None:
        self._place = place

    def run(self, server: Server, tasks: Sequence[Task]) -> Sums:
        sums = self._place.empty_sums()
        with threads(self._place.threads):
            for task in tasks:
                run_client(self._place, server, task, sums)
        return sums


def create(name: str, place: Workplace) -> Executor:
    return {"auto": Serial, "serial": Serial}[name](place)

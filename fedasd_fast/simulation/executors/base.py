"""How the clients of a round are trained: one small interface, several ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...algorithms import Server
from ..cohort import Sums, Task


class Executor(Protocol):
    def run(self, server: Server, tasks: Sequence[Task]) -> Sums:
        """Trains the clients of all tasks, in any order."""

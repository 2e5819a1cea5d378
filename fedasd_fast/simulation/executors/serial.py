"""One client after the other in this process: readable, debuggable, the reference for all others."""

from __future__ import annotations

from collections.abc import Sequence

from ...algorithms import Server
from ..cohort import Sums, Task, run_client
from ..threads import threads
from .base import Executor


class Serial(Executor):
    def run(self, server: Server, tasks: Sequence[Task]) -> Sums:
        sums = self.place.empty_sums()
        with threads(self.place.threads):
            for task in tasks:
                run_client(self.place, server, task, sums)
        return sums

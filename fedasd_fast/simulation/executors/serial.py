"""One client after the other in this process: readable, debuggable, the reference for all others."""

from __future__ import annotations

from collections.abc import Sequence

from ...algorithms import Server
from ..cohort import Sums, Task, Workplace, run_client
from ..threads import threads


class Serial:
    def __init__(self, place: Workplace) -> None:
        self._place = place

    def run(self, server: Server, tasks: Sequence[Task]) -> Sums:
        sums = self._place.empty_sums()
        with threads(self._place.threads):
            for task in tasks:
                run_client(self._place, server, task, sums)
        return sums

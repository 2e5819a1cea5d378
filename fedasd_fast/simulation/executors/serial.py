"""One client after the other in this process: readable, debuggable, the reference for all others."""

from __future__ import annotations

from collections.abc import Sequence

from ...algorithms import Server
from ..cohort import Sums, Task, run_client
from .local import Local


class Serial(Local):
    def train(self, server: Server, group: Sequence[Task], sums: Sums) -> None:
        for task in group:
            run_client(self.place, server, task, sums)

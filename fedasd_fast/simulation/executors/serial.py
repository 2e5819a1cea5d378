"""One client after the other in this process: readable, debuggable, the reference for all other executors."""

from __future__ import annotations

from collections.abc import Sequence

from ...algorithms import Server
from ..aggregation.sums import Sums
from ..cohort import ClientTask
from .in_process import InProcessExecutor


class SerialExecutor(InProcessExecutor):
    def train_group(self, server: Server, group: Sequence[ClientTask], sums: Sums) -> None:
        for task in group:
            self.train_one(server, task, sums)

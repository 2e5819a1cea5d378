"""What trains clients in one process: the whole of `serial` and `stacked`, and each worker or rank of the others."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from ...algorithms import Server
from ..cohort import Sums, Task
from ..system.threads import threads
from .base import Executor


class Local(Executor):
    @abstractmethod
    def train(self, server: Server, group: Sequence[Task], sums: Sums) -> None:
        """Trains the clients of one of the round's groups, adds them to the sums and writes their records."""

    def run(self, server: Server, tasks: Sequence[Task]) -> Sums:
        sums = self.place.empty_sums()
        with threads(self.place.threads):
            for group in self.place.groups(tasks):
                self.train(server, group, sums)
        return sums

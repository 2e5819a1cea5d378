"""Training in one process: the whole of `serial` and `stacked`, and what each worker or rank of the others does."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...algorithms import Server
from ..aggregation.sums import Sums
from ..client.update import train_client
from ..cohort import ClientTask, group_tasks
from ..context import Context
from ..errors import ClientError
from ..system.threads import threads
from .aggregator import Aggregator
from .base import Executor
from .client_watch import ClientWatch


class InProcessExecutor(Executor):
    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._aggregator = Aggregator(context.experiment, context.records, context.initial)
        self._watch = ClientWatch(context.watchers)

    @abstractmethod
    def train_group(self, server: Server, group: Sequence[ClientTask], sums: Sums) -> None:
        """Trains the clients of one of the round's groups, adds them to the sums and writes their records."""

    def run(self, server: Server, tasks: Sequence[ClientTask]) -> Sums:
        context = self.context
        sums = context.sum_layout.empty()
        with threads(context.parallelism.threads):
            for group in group_tasks(context.experiment, tasks, context.parallelism.clients_at_once):
                self.train_group(server, group, sums)
        return sums

    def train_one(self, server: Server, task: ClientTask, sums: Sums) -> None:
        """A client that fails leaves sums and records as they were."""
        with self.dropping(task, sums):
            update = train_client(self.context.trainer, self.context.records, server, task)
            self._aggregator.add(sums, server, task, update)
            self._watch.tell(server, task, update.run)

    @contextmanager
    def dropping(self, task: ClientTask, sums: Sums) -> Iterator[None]:
        """A client that fails here is noted and left out, if the configuration says so."""
        try:
            yield
        except ClientError as error:
            if self.context.experiment.config.on_client_error == "abort":
                raise
            sums.reports.drop(task.client, str(error))

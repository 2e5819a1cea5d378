"""The interface of executors: train the clients of a round, evaluate models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from ...algorithms import Server
from ..aggregation.sums import Sums
from ..cohort import ClientTask
from ..context import Context
from ..evaluation import evaluate
from ..system.threads import threads


class Executor(ABC):
    def __init__(self, context: Context) -> None:
        self.context = context

    def start(self) -> None:  # noqa: B027 (most have nothing to do)
        """Gets ready, so that the first round takes no longer than the others."""

    @abstractmethod
    def run(self, server: Server, tasks: Sequence[ClientTask]) -> Sums:
        """Trains the clients of all tasks, in any order."""

    def evaluate(self, vectors: Sequence[Tensor]) -> list[tuple[float, float]]:
        """Accuracy and cross-entropy of each model [P] on the test split."""
        experiment, model = self.context.experiment, self.context.trainer.model
        with threads(experiment.config.threads or torch.get_num_threads()):
            return [evaluate(model, v, experiment.data, experiment.config.eval_batch_size) for v in vectors]

    def close(self) -> None:  # noqa: B027
        """Releases all resources; no client is being trained when it returns.  May be called again, at any time."""

"""The clients of a round: what each has to do, and which of them are trained together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import overload

import numpy as np

from ..algorithms import Cohort
from . import sampling
from .errors import SimulationError
from .experiment import Experiment


@dataclass(frozen=True)
class ClientTask:
    client: int
    epochs: int
    weight: float  # of its model in the mean; the weights of a round sum to 1


@dataclass(frozen=True, eq=False)
class CohortTasks(Sequence[ClientTask]):
    """The tasks of many clients, as arrays: a sequence of tasks that costs nothing for each of them."""

    clients: np.ndarray  # int64 [m]
    epochs: np.ndarray  # int64 [m]
    weights: np.ndarray  # float64 [m]

    @classmethod
    def of(cls, tasks: Sequence[ClientTask]) -> CohortTasks:
        if isinstance(tasks, CohortTasks):
            return tasks
        columns = [[getattr(task, name) for task in tasks] for name in ("client", "epochs", "weight")]
        return cls(np.array(columns[0], np.int64), np.array(columns[1], np.int64), np.array(columns[2], np.float64))

    def __len__(self) -> int:
        return len(self.clients)

    @overload
    def __getitem__(self, which: int) -> ClientTask: ...
    @overload
    def __getitem__(self, which: slice | np.ndarray) -> CohortTasks: ...
    def __getitem__(self, which: int | slice | np.ndarray) -> ClientTask | CohortTasks:
        if isinstance(which, int):
            return ClientTask(int(self.clients[which]), int(self.epochs[which]), float(self.weights[which]))
        return CohortTasks(self.clients[which], self.epochs[which], self.weights[which])

    def __iter__(self) -> Iterator[ClientTask]:
        return map(ClientTask, self.clients.tolist(), self.epochs.tolist(), self.weights.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CohortTasks) and list(self) == list(other)


def client_tasks(experiment: Experiment, round: int) -> CohortTasks:
    """The round's clients that will return a model; those that drop out are left out.  Of a run with simulated devices,
    as if all were there and in time: round_plan.py has the others."""
    sampled = sampling.participants(experiment.config, round)
    epochs = sampling.local_epochs(experiment.config, round, sampled)
    return weighted_tasks(experiment, round, sampled[epochs > 0], epochs[epochs > 0])


def weighted_tasks(experiment: Experiment, round: int, clients: np.ndarray, epochs: np.ndarray) -> CohortTasks:
    """Of these clients, with the weights that the method gives them."""
    data, method = experiment.data, experiment.method
    if not len(clients):
        return CohortTasks.of([])
    sizes = data.sizes.numpy()

    def label_proportions(of: np.ndarray) -> np.ndarray:
        counts = data.cohort_label_counts(of).numpy()
        proportions: np.ndarray = counts / counts.sum(axis=1, keepdims=True).clip(min=1)
        return proportions

    try:
        weights = method.weights(Cohort(clients, sizes[clients], sizes, label_proportions))
    except Exception as error:
        name = type(method).__name__
        raise SimulationError(f"{name}.weights failed in round {round + 1}: {type(error).__name__}: {error}") from error
    if not (np.isfinite(weights).all() and weights.min() >= 0 and weights.sum() > 0):
        raise SimulationError(
            f"{type(method).__name__} gave its participants the weights {weights}; expected 0 or more, and not all 0"
        )
    return CohortTasks(clients, epochs, weights / weights.sum())


def local_steps(experiment: Experiment, tasks: Sequence[ClientTask]) -> np.ndarray:
    """[m] of each client."""
    tasks = CohortTasks.of(tasks)
    steps: np.ndarray = tasks.epochs * -(-experiment.data.sizes.numpy()[tasks.clients] // experiment.config.batch_size)
    return steps


def group_steps(experiment: Experiment, groups: Sequence[Sequence[ClientTask]]) -> list[int]:
    """Local steps of each group."""
    if not groups or isinstance(groups[0], CohortTasks):
        return [int(local_steps(experiment, group).sum()) for group in groups]
    lengths = np.array([len(group) for group in groups])
    steps = local_steps(experiment, [task for group in groups for task in group])
    found: list[int] = np.add.reduceat(steps, np.cumsum(lengths) - lengths).tolist()
    return found


def group_tasks(experiment: Experiment, tasks: Sequence[ClientTask], size: int) -> Sequence[Sequence[ClientTask]]:
    """Groups of at most `size` clients with about as many samples each, which are trained together.

    They are a function of the round's tasks alone.  The last bits of a client's result depend on its group, so they are
    the same for any number of workers or ranks.
    """
    if size == 1:
        return [[task] for task in tasks]
    tasks = CohortTasks.of(tasks)
    by_size = tasks[np.lexsort((tasks.clients, -experiment.data.sizes.numpy()[tasks.clients]))]
    number = -(-len(by_size) // size)
    ends = [len(by_size) * i // number for i in range(number + 1)] if len(by_size) else []
    return [by_size[start:end] for start, end in pairwise(ends)]

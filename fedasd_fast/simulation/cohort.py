"""The clients of a round: what each has to do, and which of them are trained together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

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


def client_tasks(experiment: Experiment, round: int) -> list[ClientTask]:
    """The round's clients that will return a model; those that drop out are left out."""
    config, data, method = experiment.config, experiment.data, experiment.method
    sampled = sampling.participants(config, round)
    epochs = np.array([sampling.local_epochs(config, round, int(k)) for k in sampled])
    clients = sampled[epochs > 0]
    if not len(clients):
        return []
    sizes = data.sizes.numpy()

    def label_proportions(of: np.ndarray) -> np.ndarray:
        proportions: np.ndarray = np.stack([data.label_counts(int(k)).numpy() / sizes[k] for k in of])
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
    weights = weights / weights.sum()
    return [ClientTask(int(k), int(e), float(w)) for k, e, w in zip(clients, epochs[epochs > 0], weights, strict=True)]


def local_steps(experiment: Experiment, task: ClientTask) -> int:
    return task.epochs * -(-int(experiment.data.sizes[task.client]) // experiment.config.batch_size)


def group_tasks(experiment: Experiment, tasks: Sequence[ClientTask], size: int) -> list[list[ClientTask]]:
    """Groups of at most `size` clients with about as many samples each, which are trained together.

    They are a function of the round's tasks alone.  The last bits of a client's result depend on its group, so they are
    the same for any number of workers or ranks.
    """
    if size == 1:
        return [[task] for task in tasks]
    by_size = sorted(tasks, key=lambda task: (-int(experiment.data.sizes[task.client]), task.client))
    number = -(-len(by_size) // size)
    ends = [len(by_size) * i // number for i in range(number + 1)] if by_size else []
    return [by_size[start:end] for start, end in pairwise(ends)]

"""The plan of a round, before any client is trained: who takes part, who is cut by the deadline, how long it lasts.

Simulated times depend on samples, epochs and bytes alone, so plans of later rounds need no training.  Every process
that asks finds the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from . import sampling
from .cohort import CohortTasks, client_tasks, weighted_tasks
from .devices import SimulatedClock, SimulatedDevices
from .errors import SimulationError
from .experiment import Experiment
from .state import State
from .traffic import bytes_per_client

_MOST_ATTEMPTS = 10_000  # to find a client that is there


@dataclass(frozen=True)
class RoundPlan:
    tasks: CohortTasks
    cut: int = 0  # clients whose answer came after the deadline
    seconds: float = 0.0  # simulated
    clock: SimulatedClock | None = None  # after the round; None: no devices are simulated


def plan_round(experiment: Experiment, state: State) -> RoundPlan:
    """Of the round that follows the state."""
    devices, clock, config = experiment.devices, state.clock, experiment.config
    if devices is None or clock is None:
        return RoundPlan(client_tasks(experiment, state.round))
    sampled, waited = available_participants(experiment, devices, state.round, clock.seconds)
    epochs = sampling.local_epochs(config, state.round, sampled)
    clients, epochs = sampled[epochs > 0], epochs[epochs > 0]
    samples = experiment.data.sizes.numpy()[clients] * epochs
    bytes = bytes_per_client(experiment, state.cloud)
    seconds, late = devices.round_seconds(devices.client_seconds(clients, samples, *bytes))
    tasks = weighted_tasks(experiment, state.round, clients[~late], epochs[~late])
    seconds += waited
    return RoundPlan(tasks, int(late.sum()), seconds, replace(clock, seconds=clock.seconds + seconds))


def available_participants(
    experiment: Experiment, devices: SimulatedDevices, round: int, now: float
) -> tuple[np.ndarray, float]:
    """[m] who takes part, and seconds that the server waited: if nobody is there, it looks again a while later."""
    config, availability = experiment.config, devices.availability
    if availability.always:
        return sampling.participants(config, round), 0.0
    for attempt in range(_MOST_ATTEMPTS):
        waited = attempt * config.availability.wait
        present = partial(availability.present, seconds=now + waited, round=round, attempt=attempt)
        found = sampling.available_participants(config, round, attempt, present)
        if len(found):
            return found, waited
    raise SimulationError(
        f"no client was available for round {round + 1} from {now:,.0f} to {now + waited:,.0f} simulated seconds; see "
        f"availability.pattern = {config.availability.pattern} and availability.period = {config.availability.period}"
    )

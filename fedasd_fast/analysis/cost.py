"""Accuracy against the computation on the clients (figure 11 of the paper).

The paper's unit is one forward pass over all samples of a client; backward passes are left out, because all methods
have the same number.  In a round of E epochs a participant needs

    E        without a teacher
    E + 1    with a teacher whose outputs are cached: the paper's count, although its code does not cache
    2 E      with a teacher that is recomputed for every view, as in the authors' code
    and another E for methods that compute the gradient twice (FedSAM, FedSpeed).

A backward pass costs about two forward passes, so that E epochs really cost 3 E: `units_with_backward`.  Clients that
failed do not count, because their cost is unknown.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from ..algorithms import Client, Server
from ..config import Config
from ..simulation.errors import SimulationError
from ..simulation.sampling import local_epochs, participants
from .loaded_run import LoadedRun

_BACKWARD_COST = 2.0  # in forward passes: one product each for the gradients of a layer's inputs and weights


@dataclass(frozen=True)
class Cost:
    """Totals up to each round that was evaluated; units count the passes of an average participant."""

    method: str
    teacher: str  # none, cache, cache_approximate or recompute
    rounds: list[int]
    accuracy: dict[str, list[float | None]]  # percent, for each averaged model
    units: list[float]  # forward passes of this run
    units_cached: list[float]  # if the teacher's outputs were cached
    units_with_backward: list[float]
    seconds: list[float]  # of training on the machine of the run; evaluation is not counted

    def accuracy_within(self, budget: float, model: str, by: str = "units") -> float | None:
        """The accuracy at the last evaluation within the budget; None if there is none."""
        if by not in ("units", "units_cached", "units_with_backward", "seconds"):
            raise ValueError(f"by = {by!r}; expected units, units_cached, units_with_backward or seconds")
        if model not in self.accuracy:
            raise ValueError(f"model = {model!r}; this run evaluated {', '.join(self.accuracy)}")
        spent: list[float] = getattr(self, by)
        covered = bisect_right(spent, budget * (1 + 1e-12))  # sums of fractions may be slightly above a whole number
        return self.accuracy[model][covered - 1] if covered else None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        last = self.rounds[-1]
        differs = self.units_cached != self.units
        cached = f" ({self.units_cached[-1] / last:.3g} with a cached teacher)" if differs else ""
        reached = ", ".join(f"{name} {'-' if v[-1] is None else f'{v[-1]:.2f} %'}" for name, v in self.accuracy.items())
        return (
            f"Cost of {last} rounds of {self.method}, teacher: {self.teacher}\n"
            f"  forward passes    {self.units[-1]:,.0f} over a participant's samples, "
            f"{self.units[-1] / last:.3g} per round{cached}\n"
            f"  with backward     {self.units_with_backward[-1]:,.0f}\n"
            f"  training          {self.seconds[-1]:,.1f} s\n"
            f"  accuracy          {reached}"
        )


def cost(run: LoadedRun) -> Cost:
    return cost_of(run.context.experiment.config, run.metrics)


def cost_of(config: Config, rows: Sequence[Mapping[str, Any]]) -> Cost:
    """Needs only the configuration and the rows of metrics.jsonl."""
    names = [name for name in config.eval_models if any(f"acc_{name}" in row for row in rows)]
    if not names:
        raise SimulationError(
            f"none of {len(rows)} rounds was evaluated; run at least eval_every = {config.eval_every} rounds"
        )
    gradients = _gradients_per_step(config)
    taught = config.distillation is not None or config.ascent_loss is not None
    recomputed = taught and config.teacher == "recompute"
    epochs = [mean_epochs(config, row) for row in rows]
    student = [gradients * e for e in epochs]
    cached = [float(taught and e > 0) for e in epochs]
    teacher = epochs if recomputed else cached
    totals = {
        "units": _running_totals(s + t for s, t in zip(student, teacher, strict=True)),
        "units_cached": _running_totals(s + t for s, t in zip(student, cached, strict=True)),
        "units_with_backward": _running_totals(
            (1 + _BACKWARD_COST) * s + t for s, t in zip(student, teacher, strict=True)
        ),
        "seconds": _running_totals(float(row.get("seconds") or 0.0) for row in rows),
    }
    at = [i for i, row in enumerate(rows) if any(f"acc_{name}" in row for name in names)]
    return Cost(
        method=config.method,
        teacher=config.teacher if taught else "none",
        rounds=[int(rows[i]["round"]) for i in at],
        accuracy={name: [_finite(rows[i].get(f"acc_{name}")) for i in at] for name in names},
        **{name: [total[i] for i in at] for name, total in totals.items()},
    )


def mean_epochs(config: Config, row: Mapping[str, Any]) -> float:
    """Mean number of epochs of the participants that returned a model; 0 if none did.

    With simulated devices, of those that were sampled: who was there and in time is not recorded.
    """
    if not row.get("client_updates"):
        return 0.0
    if not config.failures.stragglers:
        return float(config.local_epochs)
    round, failed = int(row["round"]) - 1, row.get("failed", {})
    clients = np.array([k for k in participants(config, round) if str(k) not in failed])
    epochs = local_epochs(config, round, clients)
    return float(epochs[epochs > 0].mean())


def _gradients_per_step(config: Config) -> int:
    """Gradients per local step: 2 with an ascent step."""
    method, zero = config.create_method(), torch.zeros(1)
    state = {name: zero.double() for name in method.server_state}
    server = Server(0, config.optimizer.lr, zero, state, config.clients, zero)
    client = Client(0, 1.0, dict.fromkeys(method.client_state, zero))
    perturbation = method.perturbation(server, client)
    ascends = method.correction(server, client).rho or (perturbation is not None and perturbation.dual is not None)
    return 2 if ascends else 1


def _running_totals(values: Any) -> list[float]:
    return list(accumulate(values))


def _finite(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None

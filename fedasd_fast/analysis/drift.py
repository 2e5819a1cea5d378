"""How far a round moves the global model, and each client its own (figure 12 of the paper).

The paper plots "smoothed estimates" of ||w_t - w_{t-1}|| without saying which.  Here it is the mean of the last
`window` rounds, 10 unless told: no value changes when the run goes on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..simulation.errors import SimulationError
from .loaded_run import OpenedRun

WINDOW = 10


@dataclass(frozen=True)
class Drift:
    window: int
    rounds: list[int]  # in which somebody returned a model
    drift: list[float]  # ||w_t - w_{t-1}||
    drift_smoothed: list[float]
    client_distance: list[float]  # mean over the participants of ||w_k - w_{t-1}||
    client_distance_smoothed: list[float]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"Drift, mean of the last {self.window} rounds up to round {self.rounds[-1]}\n"
            f"  global model      {self.drift_smoothed[-1]:.4g} from round to round\n"
            f"  clients' models   {self.client_distance_smoothed[-1]:.4g} from the global one"
        )


def drift(run: OpenedRun, *, window: int = WINDOW) -> Drift:
    return drift_of(run.metrics, window=window)


def drift_of(rows: Sequence[Mapping[str, Any]], *, window: int = WINDOW) -> Drift:
    """From the rows of metrics.jsonl: nothing else of the run is needed."""
    keys = ("drift", "client_distance")
    kept = [row for row in rows if all(math.isfinite(row.get(key, math.nan)) for key in keys)]
    if not kept:
        raise SimulationError(
            f"none of {len(rows)} rounds has both a drift and a client_distance; run further, or repeat the run with "
            "this version, which writes them"
        )
    moved, apart = ([float(row[key]) for row in kept] for key in keys)
    return Drift(
        window, [int(row["round"]) for row in kept],
        moved, moving_average(moved, window), apart, moving_average(apart, window),
    )  # fmt: skip


def moving_average(values: Sequence[float], window: int) -> list[float]:
    """The mean of each value and up to window - 1 values before it."""
    if window < 1:
        raise SimulationError(f"window = {window}; expected at least 1, which smoothes nothing")
    starts = (max(0, end - window) for end in range(1, len(values) + 1))
    return [math.fsum(values[start:end]) / (end - start) for end, start in enumerate(starts, 1)]

"""Recorded runs with made-up metrics."""

from __future__ import annotations

from typing import Any

from fedasd_fast.config import Config
from fedasd_fast.simulation.storage.recorded_run import RecordedRun


def synthetic_run(
    label: str = "FedAvg", accuracies: dict[int, float | None] | None = None, **settings: Any
) -> RecordedRun:
    """A run of 10 rounds with these accuracies of `cloud` and `all` by round (`sel`: one less); others have none."""
    rows: list[dict[str, Any]] = []
    for round in range(1, 11):
        row: dict[str, Any] = {"round": round, "loss": 1.0, "seconds": 0.5, "client_updates": 4}
        if accuracies and round in accuracies:
            value = accuracies[round]
            row |= {"acc_cloud": value, "acc_all": value, "acc_sel": None if value is None else value - 1}
            row["seconds_eval"] = 0.25
        rows.append(row)
    return RecordedRun(label, Config(rounds=10, **settings), rows)

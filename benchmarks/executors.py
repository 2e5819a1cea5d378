"""Executors compared: python -m benchmarks.executors [--rounds 30] [--repeats 3] [key=value ...]

The setting is one where overhead counts, as it does across devices: an MLP 64-128-64-10, 500 clients with 20 samples
each, 50 a round, 5 local epochs, batches of 10.  The executors take turns, so that whatever else the machine does hits
all of them alike.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from fedasd_fast.common.schema import merge
from fedasd_fast.config import from_dict, parse_overrides
from fedasd_fast.simulation import simulate

SETTING: dict[str, Any] = dict(
    synthetic={"shape": [64], "classes": 10, "samples_per_client": 20}, model_args={"hidden": [128, 64]},
    clients=500, participation=0.1, sampling="fixed", local_epochs=5, batch_size=10,
)  # fmt: skip
EXECUTORS: dict[str, dict[str, Any]] = {
    "serial": {"executor": "serial", "threads": 1},
    "stacked": {"executor": "stacked", "threads": 1, "client_op": False},
    "processes": {"executor": "processes"},
    "processes, stacked": {"executor": "processes", "clients_at_once": 25, "client_op": False},
    "whole-client op, one thread": {"executor": "stacked", "threads": 1},
    "whole-client op, all cores": {"executor": "stacked"},
}
METHODS = ("fedavg", "fedavg+asd", "feddyn+asd")


def measure(method: str, rounds: int, repeats: int, changes: dict[str, Any]) -> dict[str, list[float]]:
    """Seconds of each round, by executor."""
    seconds: dict[str, list[float]] = {executor: [] for executor in EXECUTORS}
    for _ in range(repeats):
        for executor, settings in EXECUTORS.items():
            own = dict(method=method, rounds=rounds, eval_every=rounds, **settings)
            rows = simulate(from_dict(merge(SETTING | own, changes))).metrics
            seconds[executor] += [row["seconds"] for row in rows[1:]]  # the first one warms up
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="key=value")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_intermixed_args()
    changes = parse_overrides(options.overrides)
    print("| method | executor | best ms | median | p20 - p80 | serial's best over it |\n|---|---|---:|---:|---:|---:|")
    for method in METHODS:
        measured = measure(method, options.rounds, options.repeats, changes)
        for executor, seconds in measured.items():
            best, middle = 1e3 * min(seconds), 1e3 * statistics.median(seconds)
            low, *_, high = (1e3 * q for q in statistics.quantiles(seconds, n=5))
            ratio = min(measured["serial"]) / min(seconds)
            print(f"| {method} | {executor} | {best:.1f} | {middle:.1f} | {low:.1f} - {high:.1f} | {ratio:.1f} |")


if __name__ == "__main__":
    main()

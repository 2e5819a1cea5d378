"""Each method, with and without ASD, relative to FedAvg: python -m benchmarks.methods [--rounds 5] [key=value ...]

The setting is the paper's CNN on images of CIFAR's size, 500 clients with 100 samples each, five of them a round, 5
local epochs, batches of 50; the teacher's outputs are cached.  Methods take turns, round by round.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from fedasd_fast import algorithms
from fedasd_fast.common.schema import merge
from fedasd_fast.config import from_dict, parse_overrides
from fedasd_fast.simulation import state
from fedasd_fast.simulation.context import build_context
from fedasd_fast.simulation.executors import local_executor
from fedasd_fast.simulation.round import run_round

SETTING: dict[str, Any] = dict(
    synthetic={"shape": [3, 32, 32], "classes": 100, "samples_per_client": 100, "test_samples": 100}, model="cnn_cifar",
    clients=500, participation=0.01, sampling="fixed", local_epochs=5, batch_size=50, optimizer={"lr": 0.1},
    asd={"weight": 30.0}, threads=1, executor="serial",
)  # fmt: skip


def measure(methods: list[str], rounds: int, changes: dict[str, Any]) -> dict[str, list[float]]:
    """Seconds of each method's rounds but the first."""
    now = {}
    for method in methods:
        context = build_context(from_dict(merge(SETTING | {"method": method}, changes)))
        experiment = context.experiment
        start = state.first(experiment.config, experiment.method, context.initial)
        now[method] = context, local_executor(context), start
    seconds: dict[str, list[float]] = {method: [] for method in methods}
    for _ in range(rounds + 1):
        for method, (context, executor, before) in now.items():
            began = time.perf_counter()
            after, _ = run_round(context.experiment, executor, before)
            seconds[method].append(time.perf_counter() - began)
            context.records.mark()
            now[method] = context, executor, after
    return {method: values[1:] for method, values in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="key=value")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_intermixed_args()
    methods = [name + asd for name in algorithms.names() for asd in ("", "+asd")]
    methods.sort(key=lambda name: not name.startswith("fedavg"))  # FedAvg first
    seconds = measure(methods, options.rounds, parse_overrides(options.overrides))
    print("| method | best s a round | median | over FedAvg | ASD over its base |\n|---|---:|---:|---:|---:|")
    for method, values in seconds.items():
        base = method.removesuffix("+asd")
        over = f"{min(values) / min(seconds[base]):.3f}" if base != method else ""
        print(
            f"| {method} | {min(values):.3f} | {statistics.median(values):.3f} | "
            f"{min(values) / min(seconds['fedavg']):.3f} | {over} |"
        )


if __name__ == "__main__":
    main()

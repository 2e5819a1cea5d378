"""Ways to train a cohort on a GPU: python -m benchmarks.gpu_simulator --out FILE [--quick] [--device cuda]

Two workloads: the MLP of benchmarks.executors, where launching is what costs, and the paper's CNN.  A way that cannot
run them is listed with the reason.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import from_dict
from fedasd_fast.simulation import simulate

from .executors import SETTING

WORKLOADS: dict[str, dict[str, Any]] = {
    "MLP, 50 clients a round": SETTING,
    "CNN, 10 clients a round": dict(
        synthetic={"shape": [3, 32, 32], "classes": 10, "samples_per_client": 100}, model="cnn_cifar", clients=100,
        participation=0.1, sampling="fixed", local_epochs=2, batch_size=50,
    ),
}  # fmt: skip
WAYS: dict[str, dict[str, Any]] = {
    "serial": {"executor": "serial"},
    "CUDA graph": {"executor": "serial", "cuda_graph": True},
    "stacked": {"executor": "stacked", "client_op": False},
    "whole-client op": {"executor": "stacked", "client_op": True},
    "auto": {"executor": "auto"},
}


def measure(device: str, rounds: int, repeats: int) -> Iterator[dict[str, Any]]:
    for workload, setting in WORKLOADS.items():
        for way, how in WAYS.items():
            row: dict[str, Any] = {"workload": workload, "way": way}
            own = dict(method="fedavg+asd", rounds=rounds, eval_every=rounds, device=device)
            try:
                results = [simulate(from_dict(setting | own | how)) for _ in range(repeats)]
            except (ConfigError, RuntimeError) as error:  # torch's errors about devices and memory are RuntimeErrors
                yield row | {"problem": f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"}
                continue
            metrics = [metric for result in results for metric in result.metrics[1:]]  # the first round warms up
            seconds = [metric["seconds"] for metric in metrics]
            updates = sum(metric["client_updates"] for metric in metrics)
            yield row | {
                "best": min(seconds), "median": statistics.median(seconds), "seconds": seconds,
                "updates_per_second": updates / sum(seconds), "trained": results[0].config.executor,
            }  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_simulator", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)
    rows = []
    for row in measure(options.device, rounds=2 if options.quick else 30, repeats=1 if options.quick else 3):
        shown = f"{1e3 * row['best']:.2f} ms" if "best" in row else row["problem"]
        print(f"{row['workload']}, {row['way']}: {shown}", flush=True)
        rows.append(row)
        options.out.write_text(json.dumps({"device": options.device, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()

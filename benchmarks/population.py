"""Time a round and memory against the population and the cohort: python -m benchmarks.population [key=value ...]

Populations far larger than what a round touches: synthetic clients with 20 samples of 32 numbers, an MLP 32-32-10, one
local epoch, batches of 10.  Every case runs in a process of its own, cases in turns, so that peaks of memory are their
own and whatever else the machine does hits all of them alike.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedasd_fast.callbacks import Callback
from fedasd_fast.common.schema import merge
from fedasd_fast.config import from_dict, parse_overrides
from fedasd_fast.simulation import simulate

from .processes import peak_memory

SETTING: dict[str, Any] = dict(
    synthetic={"shape": [32], "classes": 10, "samples_per_client": 20}, model_args={"hidden": [32]},
    sampling="fixed", local_epochs=1, batch_size=10, eval_models=["sel", "cloud"], executor="stacked", threads=1,
)  # fmt: skip
POPULATIONS = (10_000, 100_000, 1_000_000, 10_000_000)
COHORTS = (10, 100, 1_000, 10_000)
METHODS = ("fedavg", "feddyn")


@dataclass
class Case:
    method: str
    population: int
    cohort: int
    seconds: list[float] = field(default_factory=list)  # of each round but the first
    start: list[float] = field(default_factory=list)  # seconds until the first round
    memory: list[int] = field(default_factory=list)

    @property
    def best(self) -> float:
        return min(self.seconds)


class _Watch(Callback):
    memory = 0

    def on_round(self, metrics: dict[str, Any]) -> None:
        self.memory = max(self.memory, peak_memory(os.getpid()))


def child(settings: dict[str, Any]) -> dict[str, Any]:
    watch, began = _Watch(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        rows = simulate(from_dict(settings | {"out": folder + "/run"}), callbacks=[watch]).metrics
    seconds = [row["seconds"] for row in rows]
    evaluated = sum(row.get("seconds_eval", 0.0) for row in rows)
    start = time.perf_counter() - began - sum(seconds) - evaluated
    return {"seconds": seconds[1:], "start": start, "memory": watch.memory}


def measure(case: Case, rounds: int, changes: dict[str, Any]) -> None:
    own = dict(method=case.method, clients=case.population, participation=case.cohort / case.population, rounds=rounds)
    own |= dict(eval_every=rounds, checkpoint_every=rounds)
    settings = merge(SETTING | own, changes)
    command = [sys.executable, "-m", "benchmarks.population", "--child", json.dumps(settings)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{case}: {done.stderr[-1000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    case.seconds += found["seconds"]
    case.start.append(found["start"])
    case.memory.append(found["memory"])


def table(cases: list[Case]) -> str:
    lines = ["| method | population | a round | best s | median | p20 - p80 | memory, MB | s to start and end |",
             "|---|---:|---:|---:|---:|---:|---:|---:|"]  # fmt: skip
    for case in cases:
        low, *_, high = statistics.quantiles(case.seconds, n=5)
        middle = statistics.median(case.seconds)
        lines.append(
            f"| {case.method} | {case.population:,} | {case.cohort:,} | {case.best:.4f} | {middle:.4f} | "
            f"{low:.4f} - {high:.4f} | {max(case.memory) / 1e6:.0f} | {min(case.start):.1f} |"
        )
    return "\n".join(lines)


def draw(cases: list[Case], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4), layout="constrained")
    over_cohort, over_population, memory = figure.subplots(1, 3)
    styles = {"fedavg": ("FedAvg", "#0072B2", "o"), "feddyn": ("FedDyn", "#D55E00", "s")}
    for method, (label, colour, marker) in styles.items():
        mine = [case for case in cases if case.method == method]
        cohorts = sorted((c for c in mine if c.population == 1_000_000), key=lambda c: c.cohort)
        populations = sorted((c for c in mine if c.cohort == 1_000), key=lambda c: c.population)
        style = {"color": colour, "marker": marker, "label": label}
        over_cohort.plot([c.cohort for c in cohorts], [c.best for c in cohorts], **style)
        over_population.plot([c.population for c in populations], [c.best for c in populations], **style)
        memory.plot([c.population for c in populations], [max(c.memory) / 1e6 for c in populations], **style)
    over_cohort.set(xscale="log", yscale="log", xlabel="clients a round, of 1,000,000", ylabel="seconds a round")
    over_population.set(xscale="log", xlabel="population, 1,000 clients a round", ylabel="seconds a round")
    memory.set(xscale="log", xlabel="population, 1,000 clients a round", ylabel="peak memory, MB")
    for axes in (over_population, memory):
        axes.set_ylim(0, 1.15 * axes.get_ylim()[1])
    for axes in (over_cohort, over_population, memory):
        axes.grid(color="#dddddd")
        axes.spines[["top", "right"]].set_visible(False)
    over_cohort.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="key=value")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--figure", type=Path, help="where to draw it")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args()
    if options.child:
        print(json.dumps(child(json.loads(options.child))))
        return
    points = dict.fromkeys([(p, 1_000) for p in POPULATIONS] + [(1_000_000, c) for c in COHORTS])
    cases = [Case(method, *point) for method in METHODS for point in points]
    for _ in range(options.repeats):
        for case in cases:
            measure(case, options.rounds, parse_overrides(options.overrides))
    print(table(cases))
    if options.figure:
        draw(cases, options.figure)


if __name__ == "__main__":
    main()

"""Accuracy of every method with and without ASD: python -m benchmarks.method_table RUNS.jsonl [digits quickstart]

Each method has the same budget: four settings, of which the best at one seed and a third of the rounds is run with
three other seeds.  They are two learning rates times two values of the method's own parameter, or four learning rates
if it has none.  Runs that are in the file are not repeated: docs/methods-runs.jsonl gives the table of docs/methods.md.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedasd_fast import algorithms, presets, simulate
from fedasd_fast.algorithms.hooks import why_not_stacked
from fedasd_fast.simulation import SimulationError

LRS, MORE_LRS = (0.05, 0.1), (0.025, 0.05, 0.1, 0.2)
OWN: dict[str, tuple[str, tuple[float, float]]] = {
    "fedadam": ("lr", (0.01, 0.03)),
    "fedavgm": ("beta", (0.5, 0.9)),
    "fedcm": ("alpha", (0.1, 0.5)),
    "feddc": ("alpha", (0.01, 0.1)),
    "feddisco": ("a", (0.2, 0.5)),
    "feddyn": ("alpha", (0.01, 0.1)),
    "fedexp": ("epsilon", (1e-3, 1e-1)),
    "fedgkd": ("models", (2, 5)),
    "fedgmt": ("beta", (10.0, 100.0)),
    "fedinit": ("beta", (0.05, 0.1)),
    "fedlc": ("tau", (0.5, 1.0)),
    "fedlesam": ("rho", (0.05, 0.1)),
    "fedntd": ("beta", (1.0, 3.0)),
    "fedprox": ("mu", (0.01, 0.1)),
    "fedrs": ("alpha", (0.5, 0.9)),
    "fedsam": ("rho", (0.05, 0.2)),
    "fedsmoo": ("rho", (0.05, 0.1)),
    "fedsol": ("rho", (0.1, 1.0)),
    "fedspeed": ("rho", (0.05, 0.1)),
    "fedyogi": ("lr", (0.01, 0.03)),
    "moon": ("mu", (0.1, 1.0)),
}
TUNING_SEED, SEEDS = 100, (0, 1, 2)
LAST = 5  # evaluations whose mean is the accuracy of a run
Run = dict[str, Any]


def candidates(method: str) -> Iterator[dict[str, Any]]:
    """The four settings of a method."""
    if method not in OWN:
        yield from ({"lr": lr, "method_args": {}} for lr in MORE_LRS)
        return
    name, values = OWN[method]
    yield from ({"lr": lr, "method_args": {name: value}} for lr in LRS for value in values)


def accuracy(preset: str, method: str, chosen: dict[str, Any], seed: int, rounds: int) -> float:
    """In percent, of the server's model; NaN if the run diverged."""
    built = algorithms.create(method.removesuffix("+asd"), chosen["method_args"])
    config = presets.load(preset).replace(
        method=method, method_args=chosen["method_args"], optimizer={"lr": chosen["lr"]}, seed=seed, rounds=rounds,
        eval_models=["cloud"], threads=1, executor="serial" if why_not_stacked(built) else "stacked",
    )  # fmt: skip
    try:
        rows = simulate(config).metrics
    except SimulationError:
        return math.nan
    return statistics.mean([row["acc_cloud"] for row in rows if "acc_cloud" in row][-LAST:])


class Runs:
    """The file of runs, which grows line by line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.known: dict[str, float] = {}
        for run in map(json.loads, lines):
            found = run.pop("accuracy")
            self.known[json.dumps(run, sort_keys=True)] = math.nan if found is None else found

    def accuracy(self, preset: str, method: str, chosen: dict[str, Any], seed: int, rounds: int) -> float:
        run: Run = {"preset": preset, "method": method, **chosen, "seed": seed, "rounds": rounds}
        key = json.dumps(run, sort_keys=True)
        if key not in self.known:
            found = accuracy(preset, method, chosen, seed, rounds)
            self.known[key] = found
            with self._path.open("a") as file:
                file.write(json.dumps(run | {"accuracy": None if math.isnan(found) else round(found, 3)}) + "\n")
        return self.known[key]


def cell(runs: Runs, preset: str, method: str) -> list[float]:
    """The accuracies of the method's best setting with each seed."""
    rounds = presets.load(preset).rounds
    settings = list(candidates(method.removesuffix("+asd")))
    tuned = [runs.accuracy(preset, method, chosen, TUNING_SEED, rounds // 3) for chosen in settings]
    best = max(range(len(settings)), key=lambda i: -1.0 if math.isnan(tuned[i]) else tuned[i])
    return [runs.accuracy(preset, method, settings[best], seed, rounds) for seed in SEEDS]


def formatted(values: list[float]) -> str:
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def table(runs: Runs, of: Sequence[str], methods: Sequence[str]) -> str:
    """In Markdown; what is missing is run."""
    columns = [(preset, asd) for preset in of for asd in ("", "+asd")]
    cells = {(m, *column): cell(runs, column[0], m + column[1]) for column in columns for m in methods}
    lines = [
        "| method | " + " | ".join(preset + asd for preset, asd in columns) + " |",
        "|---|" + "---:|" * len(columns),
    ]
    for m in methods:
        lines.append(f"| `{m}` | " + " | ".join(formatted(cells[(m, *column)]) for column in columns) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="a file of lines of JSON; what is missing in it is run and added")
    parser.add_argument("presets", nargs="*", default=["digits", "quickstart"])
    parser.add_argument("--methods", nargs="*", default=algorithms.names())
    options = parser.parse_intermixed_args()
    print(table(Runs(options.runs), options.presets, options.methods))


if __name__ == "__main__":
    main()

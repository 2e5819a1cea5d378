"""fedasd sweep: every combination of some settings."""

from __future__ import annotations

import argparse
import csv
import itertools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from ..report.runs import Run, shown_model
from ..report.table import results_table
from ..typed import ConfigError
from .compare import seeds
from .running import draw, ensure
from .settings import add_running, add_settings, configuration

_MOST_CURVES = 12  # more cannot be told apart in one picture


def add(subparsers: Any) -> None:
    text = "Runs every combination.  Finished runs are not repeated, interrupted ones are resumed."
    parser = subparsers.add_parser("sweep", help="run every combination of some settings", description=text)
    add_settings(parser)
    over = "the values of a setting, may be repeated: --over asd.weight=1,3,10 --over method=fedavg+asd,feddyn+asd"
    parser.add_argument("--over", action="append", required=True, metavar="key=v1,v2", help=over)
    parser.add_argument("--seeds", metavar="0,1", help="comma-separated (default: the preset's seed)")
    parser.add_argument("--out", metavar="DIR", help="holds a folder for each run (default: runs/PRESET-sweep)")
    add_running(parser)
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    axes = dict(axis(word) for word in arguments.over)
    first = configuration(arguments)
    out = Path(arguments.out or Path("runs") / f"{first.name}-sweep")
    points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    todo = [
        (point, configuration(arguments, **point, seed=seed))  # all before the first run: errors come early
        for point in points
        for seed in seeds(arguments.seeds, first)
    ]
    runs = []
    for point, config in todo:
        found = ensure(config, out / f"{folder_name(point)}-seed{config.seed}", arguments)
        runs.append(Run(label(point), found.config, found.metrics, found.out))
        save_csv(out / "results.csv", [point for point, _ in todo], runs)
    print()
    results_table(runs).show()
    if len(points) <= _MOST_CURVES:
        draw(out / "sweep.png", runs, model=shown_model(first), title=f"{first.name}: sweep")
    print(f"  numbers   {out / 'results.csv'}")
    return 0


def axis(word: str) -> tuple[str, list[Any]]:
    """asd.weight=1,3 as ("asd.weight", [1, 3]); lists in brackets stay lists."""
    key, equals, text = word.partition("=")
    try:
        values = yaml.safe_load(f"[{text}]") if equals and key else None
    except yaml.YAMLError:
        values = None
    if not values:
        raise ConfigError(f"--over {word}; expected key=v1,v2, for instance --over asd.weight=1,3,10")
    return key, values


def label(point: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in point.items())


def folder_name(point: Mapping[str, Any]) -> str:
    return re.sub(r"[^\w.,=+-]", "_", label(point).replace(", ", ","))


def save_csv(path: Path, points: Iterable[Mapping[str, Any]], runs: list[Run]) -> None:
    """One row a run; written anew after each, so that an interrupted sweep leaves what it has."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        for number, (point, run) in enumerate(zip(points, runs, strict=False)):
            accuracies = {f"acc_{model}": run.accuracy(model) for model in ("all", "sel", "cloud")}
            row = {**point, "seed": run.config.seed, "rounds": run.rounds, **accuracies, "seconds": run.seconds}
            if number == 0:
                writer.writerow(row)
            writer.writerow(row.values())

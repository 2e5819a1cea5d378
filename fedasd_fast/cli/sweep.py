"""fedasd sweep: every combination of some settings."""

from __future__ import annotations

import argparse
import csv
import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from .. import presets
from ..common.schema import ConfigError
from ..config import Config
from ..report.accuracy_plot import setting_text
from ..report.results_tables import results_table
from ..report.setting_plot import Point, numeric_axis, over_figure
from ..simulation.storage.recorded_run import Run, shown_model
from .compare import seeds
from .execution import draw, ensure, picture, write_page
from .settings import add_running, add_settings, configuration

MOST_CURVES = 12  # more cannot be told apart in one picture


def add(subparsers: Any) -> None:
    text = "Runs every combination.  Finished runs are not repeated, interrupted ones are resumed."
    parser = subparsers.add_parser("sweep", help="run every combination of some settings", description=text)
    add_settings(parser)
    over = "the values of a setting, may be repeated: --over asd.weight=1,3,10 --over method=fedavg+asd,feddyn+asd "
    over += "(default: what the preset spans)"
    parser.add_argument("--over", action="append", metavar="key=v1,v2", help=over)
    parser.add_argument("--seeds", metavar="0,1", help="comma-separated (default: the preset's seed)")
    parser.add_argument("--out", metavar="DIR", help="holds a folder for each run (default: runs/PRESET-sweep)")
    add_running(parser)
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    first = configuration(arguments)
    axes = dict(axis(word) for word in arguments.over) if arguments.over else own_axes(first)
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
        runs.append(replace(found, label=label(point)))
        save_csv(out / "results.csv", [point for point, _ in todo], runs)
    paper = {run.label: cell for run in runs if (cell := presets.expected(run.config)) and cell.comparable}
    model = shown_model(first, next((cell.model for cell in paper.values()), "all"))
    print()
    results_table(runs, {name: f"{cell.mean:.2f} ({cell.model})" for name, cell in paper.items()}).show()
    if len(points) <= MOST_CURVES:
        draw(out / "sweep.png", runs, model=model, title=f"{first.name}: sweep")
    if numbers := numeric_axis(axes):
        means = {name: cell.mean for name, cell in paper.items() if cell.model == model}
        there = [Point(point, accuracies(runs, label(point), model), means.get(label(point))) for point in points]
        title, common = f"{first.name}: sweep", setting_text([run.config for run in runs])
        picture(out / "over.png", lambda: over_figure(there, numbers, model=model, title=title, subtitle=common))
    print(f"  numbers   {out / 'results.csv'}")
    write_page(runs, out, title=f"{first.name}: sweep")
    return 0


def own_axes(config: Config) -> dict[str, list[Any]]:
    spans = presets.describe(config.name).get("grid") if config.name in presets.names() else None
    if not spans:
        raise ConfigError(f"{config.name} spans nothing; say what to vary, as in --over asd.weight=1,3,10")
    return {key: list(values) for key, values in spans.items()}


def accuracies(runs: list[Run], label: str, model: str) -> list[float]:
    """Seed by seed."""
    return [value for run in runs if run.label == label and (value := run.accuracy(model)) is not None]


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

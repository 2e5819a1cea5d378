"""fedasd sweep: runs every combination of the values of some settings."""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import presets
from ..common import safe_yaml
from ..common.files import write_atomically
from ..common.formatting import method_label
from ..common.schema import ConfigError
from ..config import Config
from ..report.accuracy_plot import common_settings
from ..report.results_tables import paper_text, results_table
from ..report.setting_plot import SettingPoint, numeric_axis, setting_figure
from ..simulation.storage.recorded_run import RecordedRun
from .dry_run import list_runs
from .execution import across_ranks, announce, complete_run
from .options import add_run_options, add_settings, configuration, each_once, parse_seeds
from .outputs import print_failures, save_accuracy_plot, save_plot, write_page

MAX_CURVES = 12  # more cannot be told apart in one plot


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs every combination of settings.  Finished runs are not repeated, interrupted ones are resumed."
    )
    add_settings(parser)
    over = "the values of a setting; may be repeated: --over asd.weight=1,3,10 --over method=fedavg+asd,feddyn+asd "
    over += "(default: the preset's grid)"
    parser.add_argument("--over", action="append", metavar="key=v1,v2", help=over)
    parser.add_argument("--seeds", metavar="0,1", help="comma-separated (default: the preset's seed)")
    parser.add_argument("--out", metavar="DIR", help="contains a directory per run (default: runs/PRESET-sweep)")
    parser.add_argument("--dry-run", action="store_true", help="list the runs and how long they would take")
    add_run_options(parser)
    parser.set_defaults(function=run)


@across_ranks
def run(arguments: argparse.Namespace) -> int:
    first = configuration(arguments)
    axes = parse_axes(arguments.over) if arguments.over else preset_axes(first)
    out = Path(arguments.out or Path("runs") / f"{first.name}-sweep")
    if "seed" in axes and arguments.seeds is not None:
        raise ConfigError(f"--seeds {arguments.seeds} and --over seed=...; give the seeds once")
    seeds = axes.pop("seed", [first.seed]) if arguments.seeds is None else parse_seeds(arguments.seeds)
    points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    planned = [
        (point, configuration(arguments, **point, seed=seed))  # all before the first run, to find errors early
        for point in points
        for seed in seeds
    ]
    folders = [out / f"{directory_name(point) or config.method}-seed{config.seed}" for point, config in planned]
    if arguments.dry_run:
        list_runs([(config, folder) for (_, config), folder in zip(planned, folders, strict=True)], arguments)
        return 0
    runs: list[RecordedRun] = []
    for (point, config), folder in zip(planned, folders, strict=True):
        label = point_label(point) or method_label(config.method)
        announce(len(runs) + 1, len(planned), label, config.seed, arguments)
        runs.append(replace(complete_run(config, folder, arguments), label=label))
        save_csv(out / "results.csv", [point for point, _ in planned], runs)
    show_sweep(runs, first, axes, points, out)
    return 0


def show_sweep(
    runs: list[RecordedRun],
    first: Config,
    axes: Mapping[str, list[Any]],
    points: list[dict[str, Any]],
    out: Path,
) -> None:
    paper = {run.label: cell for run in runs if (cell := presets.expected(run.config)) and cell.comparable}
    model = presets.headline_model(first)
    title = f"{first.name}: sweep"
    print()
    results_table(runs, {name: paper_text(cell) for name, cell in paper.items()}).show()
    print_failures(runs)
    if len(points) <= MAX_CURVES:
        save_accuracy_plot(out / "sweep.png", runs, model=model, title=title)
    if axis := numeric_axis(axes):
        means = {name: cell.mean for name, cell in paper.items() if cell.model == model}
        shown = [
            SettingPoint(point, final_accuracies(runs, label, model), means.get(label))
            for point in points
            if (label := point_label(point))
        ]
        subtitle = common_settings([run.config for run in runs])
        save_plot(out / "over.png", lambda: setting_figure(shown, axis, model=model, title=title, subtitle=subtitle))
    print(f"  numbers   {out / 'results.csv'}")
    write_page(runs, out, title=title)


def preset_axes(config: Config) -> dict[str, list[Any]]:
    grid = presets.describe(config.name).get("grid") if config.name in presets.names() else None
    if not grid:
        raise ConfigError(f"{config.name} has no grid; say what to vary, as in --over asd.weight=1,3,10")
    return {key: list(values) for key, values in grid.items()}


def final_accuracies(runs: list[RecordedRun], label: str, model: str) -> list[float]:
    """Of each seed."""
    return [value for run in runs if run.label == label and (value := run.accuracy(model)) is not None]


def parse_axes(words: Sequence[str]) -> dict[str, list[Any]]:
    axes: dict[str, list[Any]] = {}
    for word in words:
        key, values = parse_axis(word)
        if key in axes:
            raise ConfigError(f"--over {word}: {key} is given twice; put all its values into one --over")
        axes[key] = each_once(values, key)
    return axes


def parse_axis(word: str) -> tuple[str, list[Any]]:
    """asd.weight=1,3 as ("asd.weight", [1, 3]); lists in brackets stay lists."""
    key, equals, text = word.partition("=")
    values = None
    with contextlib.suppress(ConfigError):
        values = safe_yaml.load(f"[{text}]", word) if equals and key else None
    if not values:
        raise ConfigError(f"--over {word}; expected key=v1,v2, for instance --over asd.weight=1,3,10")
    return key, values


def point_label(point: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in point.items())


def directory_name(point: Mapping[str, Any]) -> str:
    return re.sub(r"[^\w.,=+-]", "_", point_label(point).replace(", ", ","))


def save_csv(path: Path, points: Iterable[Mapping[str, Any]], runs: list[RecordedRun]) -> None:
    """One row per run; written again after each, so that an interrupted sweep leaves its results so far."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    for number, (point, run) in enumerate(zip(points, runs, strict=False)):
        accuracies = {f"acc_{model}": run.accuracy(model) for model in ("all", "sel", "cloud")}
        row = {**point, "seed": run.config.seed, "rounds": run.rounds, **accuracies, "seconds": run.seconds}
        if number == 0:
            writer.writerow(row)
        writer.writerow(row.values())
    write_atomically(path, text.getvalue().encode())

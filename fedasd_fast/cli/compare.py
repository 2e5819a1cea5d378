"""fedasd compare: several methods and seeds with the same settings, compared in a plot and a table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .. import presets
from ..common.files import write_atomically
from ..common.formatting import method_label, plural
from ..common.schema import ConfigError
from ..config import Config
from ..report.results_tables import paper_text, results_table
from ..report.run_discovery import find_runs, without_repeats
from ..simulation.storage.recorded_run import RecordedRun
from .dry_run import list_runs
from .execution import across_ranks, announce, complete_run, other_settings
from .options import (
    add_run_options,
    add_settings,
    configuration,
    each_once,
    parse_seeds,
    read_configuration,
    split_words,
)
from .outputs import print_failures, save_accuracy_plot, write_page

_METHODS_HELP = (
    "comma-separated; `all`: the methods of the preset's table (default: the preset's method without and with ASD)"
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs several methods with the same settings.  Finished runs are not repeated, interrupted ones are resumed.  "
        "Runs of other methods and seeds with these settings that DIR has already are shown beside the new ones."
    )
    add_settings(parser)
    parser.add_argument("--methods", metavar="A,B", help=_METHODS_HELP)
    parser.add_argument("--seeds", metavar="0,1", help="comma-separated (default: the preset's seed)")
    parser.add_argument("--out", metavar="DIR", help="contains a directory per run (default: runs/PRESET-compare)")
    parser.add_argument("--dry-run", action="store_true", help="list the runs and how long they would take")
    add_run_options(parser)
    parser.set_defaults(function=run)


@across_ranks
def run(arguments: argparse.Namespace) -> int:
    first = configuration(arguments)
    out = Path(arguments.out or Path("runs") / f"{first.name}-compare")
    seeds = [first.seed] if arguments.seeds is None else parse_seeds(arguments.seeds)
    configs = [
        configuration(arguments, method=method, seed=seed)
        for method in methods_to_compare(arguments.methods, first)
        for seed in seeds
    ]
    planned = [(config, out / f"{config.method}-seed{config.seed}") for config in configs]
    if arguments.dry_run:
        list_runs(planned, arguments)
        return 0
    runs = []
    for number, (config, folder) in enumerate(planned, 1):
        announce(number, len(planned), method_label(config.method), config.seed, arguments)
        runs.append(complete_run(config, folder, arguments))
    show_comparison(with_other_runs(arguments, out, runs), out)
    return 0


def with_other_runs(arguments: argparse.Namespace, out: Path, runs: Sequence[RecordedRun]) -> list[RecordedRun]:
    """And those of other methods and seeds that the directory had before, if their settings are the same."""
    own = {run.out.resolve() for run in runs if run.out}
    others = []
    for run in find_runs([out])[0]:
        if run.out is None or run.out.resolve() in own:
            continue
        same, _ = read_configuration(arguments, method=run.config.method, seed=run.config.seed)
        if differs := other_settings(same, run):
            print(f"fedasd: {run.out} is left out: it has other settings ({differs})", file=sys.stderr)
        else:
            others.append(run)
    others.sort(key=lambda run: (run.config.method, run.config.seed))
    shown, repeated = without_repeats([*runs, *others])
    for line in repeated:
        print(f"fedasd: {line}", file=sys.stderr)
    if names := [f"{run.label} seed {run.config.seed}" for run in shown if run in others]:
        print(f"with {plural(len(names), 'run')} that {out} had before: {', '.join(names)}")
    return shown


def methods_to_compare(text: str | None, config: Config) -> list[str]:
    if text is None:
        return [config.base_method, f"{config.base_method}+asd"]
    if text != "all":
        return each_once(split_words(text), "method")
    listed = presets.describe(config.name).get("grid", {}).get("method") if config.name in presets.names() else None
    if not listed:
        raise ConfigError(
            f"--methods all: {config.name} lists no methods; name them, as in --methods fedavg,fedavg+asd"
        )
    return list(listed)


def show_comparison(runs: list[RecordedRun], out: Path) -> None:
    config = runs[0].config
    expected = {method_label(run.config.method): found for run in runs if (found := presets.expected(run.config))}
    example = next(iter(expected.values()), None)
    model = presets.headline_model(config)
    lines = {label: found.mean for label, found in expected.items() if found.comparable and found.model == model}
    table = results_table(runs, {label: paper_text(found) for label, found in expected.items()})
    write_atomically(out / "compare.txt", (table.text() + "\n").encode())
    print()
    table.show()
    print_failures(runs)
    for label, found in expected.items():
        if found.differs or found.suspect:
            print(f"paper, {label}: {found}")
    rounds = example.rounds if example else None
    save_accuracy_plot(out / "compare.png", runs, model=model, paper=lines, paper_rounds=rounds, title=config.name)
    write_page(runs, out, title=config.name)

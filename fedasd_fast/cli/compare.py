"""fedasd compare: several methods and seeds with the same settings, or runs that exist, in a plot and a table."""

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
from ..report.run_group import RunGroup, group_runs
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
_OUT_HELP = "contains a directory per run (default: runs/PRESET-compare; of runs that exist: runs/compare)"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs several methods with the same settings.  Finished runs are not repeated, interrupted ones are resumed.  "
        "Runs of other methods and seeds with these settings that DIR has already are shown beside the new ones.  With "
        "run directories in place of a preset (fedasd compare RUN RUN ...) these are compared, and nothing is run."
    )
    add_settings(parser)
    parser.add_argument("--methods", metavar="A,B", help=_METHODS_HELP)
    parser.add_argument("--seeds", metavar="0,1", help="comma-separated (default: the preset's seed)")
    parser.add_argument("--out", metavar="DIR", help=_OUT_HELP)
    parser.add_argument("--dry-run", action="store_true", help="list the runs and how long they would take")
    add_run_options(parser)
    parser.set_defaults(function=run)


@across_ranks
def run(arguments: argparse.Namespace) -> int:
    if folders := named_runs(arguments):
        out = Path(arguments.out or Path("runs") / "compare")
        out.mkdir(parents=True, exist_ok=True)
        show_comparison(group_runs(read_runs(folders)), out)
        return 0
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
    show_comparison([RunGroup(first.name, with_other_runs(arguments, out, runs))], out)
    return 0


def named_runs(arguments: argparse.Namespace) -> list[Path]:
    """The run directories that are named in place of a preset; none: a preset is."""
    words = [arguments.preset, *arguments.settings]
    runs = [Path(word) for word in words if word not in presets.names() and Path(word).is_dir()]
    if not runs:
        return []
    if others := [word for word in words if Path(word) not in runs]:
        what = "a setting" if "=" in others[0] else "a preset" if others[0] in presets.names() else "no directory"
        raise ConfigError(
            f"{runs[0]} is a directory, {others[0]} is {what}: compare either a preset's methods (`fedasd compare "
            "PRESET key=value ...`) or runs that exist (`fedasd compare RUN RUN ...`)"
        )
    options = {"--methods": arguments.methods, "--seeds": arguments.seeds, "--dry-run": arguments.dry_run}
    if given := [name for name, value in options.items() if value]:
        raise ConfigError(f"{given[0]} with run directories: they are compared as they are; leave it out")
    return runs


def read_runs(folders: Sequence[Path]) -> list[RecordedRun]:
    """Each once; a directory that cannot be read is an error: it was asked for by name."""
    found, unreadable = find_runs(folders)
    if unreadable:
        raise ConfigError(f"cannot be compared: {unreadable[0]}")
    runs, repeated = without_repeats(found)
    for line in (*repeated, *(line for run in runs for line in run.bad_lines)):
        print(f"fedasd: {line}", file=sys.stderr)
    return runs


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


def show_comparison(groups: Sequence[RunGroup], out: Path) -> None:
    """A table and a plot for each group, one page for all."""
    shown = [
        (group, results_table(group.runs, {label: paper_text(found) for label, found in group.expected.items()}, title))
        for group in groups
        for title in [group.title if len(groups) > 1 else ""]
    ]
    text = "\n\n".join(table.text() for _, table in shown)
    write_atomically(out / "compare.txt", (text + "\n").encode())
    for number, (group, table) in enumerate(shown, 1):
        print()
        table.show()
        print_failures(group.runs)
        for label, found in group.expected.items():
            if found.differs or found.suspect:
                print(f"paper, {label}: {found}")
        save_group_plot(out / ("compare.png" if len(groups) == 1 else f"compare-{number}.png"), group)
    write_page([run for group in groups for run in group.runs], out, title=", ".join(group.title for group in groups))


def save_group_plot(path: Path, group: RunGroup) -> None:
    expected, model = group.expected, group.model
    lines = {label: found.mean for label, found in expected.items() if found.comparable and found.model == model}
    rounds = next((found.rounds for found in expected.values()), None)
    save_accuracy_plot(path, list(group.runs), model=model, paper=lines, paper_rounds=rounds, title=group.title)

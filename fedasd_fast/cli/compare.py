"""fedasd compare: the same setting with several methods and seeds, ending in a picture and a table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .. import presets
from ..common.formatting import pretty
from ..common.schema import ConfigError
from ..config import Config
from ..report.results_tables import results_table
from ..simulation.storage.recorded_run import Run, shown_model
from .execution import draw, ensure, write_page
from .settings import add_running, add_settings, configuration

_HELP = "comma-separated; `all`: those of the preset's table (default: the preset's method without and with ASD)"


def add(subparsers: Any) -> None:
    text = "Runs methods side by side.  Finished runs are not repeated, interrupted ones are resumed."
    parser = subparsers.add_parser("compare", help="run several methods side by side", description=text)
    add_settings(parser)
    parser.add_argument("--methods", metavar="A,B", help=_HELP)
    parser.add_argument("--seeds", metavar="0,1", help="comma-separated (default: the preset's seed)")
    parser.add_argument("--out", metavar="DIR", help="holds a folder for each run (default: runs/PRESET-compare)")
    add_running(parser)
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    first = configuration(arguments)
    out = Path(arguments.out or Path("runs") / f"{first.name}-compare")
    todo = [
        configuration(arguments, method=method, seed=seed)
        for method in methods(arguments.methods, first)
        for seed in seeds(arguments.seeds, first)
    ]
    runs = [ensure(config, out / f"{config.method}-seed{config.seed}", arguments) for config in todo]
    show(runs, out)
    return 0


def methods(text: str | None, config: Config) -> list[str]:
    if text is None:
        return [config.base_method, f"{config.base_method}+asd"]
    if text != "all":
        return [word.strip() for word in text.split(",") if word.strip()]
    listed = presets.describe(config.name).get("grid", {}).get("method") if config.name in presets.names() else None
    if not listed:
        raise ConfigError(
            f"--methods all: {config.name} lists no methods; name them, as in --methods fedavg,fedavg+asd"
        )
    return list(listed)


def seeds(text: str | None, config: Config) -> list[int]:
    try:
        return [config.seed] if text is None else [int(word) for word in text.split(",")]
    except ValueError:
        raise ConfigError(f"--seeds {text}; expected whole numbers with commas between them, as in 0,1,2") from None


def show(runs: list[Run], out: Path) -> None:
    config = runs[0].config
    expected = {pretty(run.config.method): found for run in runs if (found := presets.expected(run.config))}
    example = next(iter(expected.values()), None)
    model = shown_model(config, example.model if example else "all")
    lines = {label: found.mean for label, found in expected.items() if found.comparable and found.model == model}
    numbers = {
        label: f"{found.mean:.2f}" + ("" if found.std is None else f" ± {found.std:.2f}") + f" ({found.model})"
        for label, found in expected.items()
    }
    table = results_table(runs, numbers)
    (out / "compare.txt").write_text(table.text() + "\n")
    print()
    table.show()
    for label, found in expected.items():
        if found.differs or found.suspect:
            print(f"paper, {label}: {found}")
    rounds = example.rounds if example else None
    draw(out / "compare.png", runs, model=model, paper=lines, paper_rounds=rounds, title=config.name)
    write_page(runs, out, title=config.name)

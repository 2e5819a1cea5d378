"""fedasd analyse: what a run's models can be asked: flatness, gradient dissimilarity, and so on."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ..common.schema import ConfigError

_EPILOG = """Options of one analysis are given as key=value, for instance hessian.top=10 hessian.probes=30
dissimilarity.clients=50.  Results: RUN/analysis/NAME.json and NAME.png."""


def add(subparsers: Any) -> None:
    from ..analysis.registry import ANALYSES

    text = f"Analyses a run at its last checkpoint: {', '.join(ANALYSES)}."
    formatter = argparse.RawDescriptionHelpFormatter
    parser = subparsers.add_parser(
        "analyse", help="flatness, gradient dissimilarity, ... of a run", description=text, epilog=_EPILOG,
        formatter_class=formatter,
    )  # fmt: skip
    parser.add_argument("folder", metavar="RUN", help="the folder of the run")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="options of an analysis")
    parser.add_argument("--only", metavar="A,B", help="these analyses (default: all)")
    parser.add_argument("--model", choices=("all", "sel", "cloud"), help="which averaged model (default: all)")
    parser.add_argument("--samples", metavar="N", help="training samples to use, or `all` (default: the analysis')")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn at random (default: 0)")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    from ..analysis import registry
    from ..common import progress
    from ..config import parse_overrides

    names = registry.chosen(None if arguments.only is None else _words(arguments.only))
    own = parse_overrides(arguments.settings)
    for name, value in own.items():
        if name not in names:
            raise ConfigError(f"unknown setting {name}; expected one of {', '.join(f'{n}.OPTION' for n in names)}")
        if not isinstance(value, dict):
            raise ConfigError(f"{name} = {value!r}; expected {name}.OPTION=VALUE, for instance hessian.top=10")
    line = progress.Line()
    common: dict[str, Any] = {"seed": _seed(arguments.seed)}
    if arguments.model is not None:
        common["model"] = arguments.model
    if arguments.samples is not None:
        common["samples"] = _samples(arguments.samples)
    if not arguments.quiet:
        common["tell"] = line
    # All options are checked before any work is done.
    options = {name: registry.keywords(name, common, own.get(name, {})) for name in names}
    from ..analysis.loaded_run import opened

    folder = Path(arguments.folder)
    found = opened(folder)
    for name in names:
        try:
            result = registry.compute(name, found, options[name])
        finally:
            line.close()
        print(result)
        _save(name, folder, result.to_dict(), found.context.experiment.config.method)
    return 0


def _save(name: str, folder: Path, values: dict[str, Any], method: str) -> None:
    from ..analysis import registry
    from ..common.formatting import pretty
    from ..common.plotting import save
    from ..simulation.storage.checkpoint import write_atomically

    path = folder / "analysis" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, (json.dumps(values, indent=1) + "\n").encode())
    print(f"  numbers          {path}")
    try:
        figure = registry.draw(name, [{**values, "label": pretty(method)}])
    except ModuleNotFoundError as error:
        print(f"no picture: {error}")
    else:
        if figure is not None:
            print(f"  picture          {save(figure, path.with_suffix('.png'))}")


def _samples(text: str) -> int | None:
    if text == "all":
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ConfigError(f"--samples {text}; expected a positive whole number, or all")
    return int(text)


def _seed(seed: int) -> int:
    if seed < 0:
        raise ConfigError(f"--seed {seed}; expected 0 or more")
    return seed


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]

"""fedasd analyse: analyses a run at its last checkpoint."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..analysis import registry
from ..analysis.loaded_run import load_run
from ..common import compact_json
from ..common.files import write_atomically
from ..common.formatting import method_label
from ..common.progress import ProgressDisplay
from ..common.schema import ConfigError
from ..config import parse_overrides
from ..simulation.system.threads import choose_threads, threads
from .execution import say, trusted_config
from .options import add_trust_code, split_words
from .outputs import save_plot

_EPILOG = """Options of one analysis are given as key=value, for instance hessian.top=10 hessian.probes=30
dissimilarity.clients=50; threads=N sets the number of threads.  Results: RUN/analysis/NAME.json and NAME.png."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = f"Analyses a run at its last checkpoint: {', '.join(registry.ANALYSES)}."
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("folder", metavar="RUN", help="the run directory")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="options of an analysis")
    parser.add_argument("--only", metavar="A,B", help="these analyses (default: all)")
    parser.add_argument("--model", choices=("all", "sel", "cloud"), help="which averaged model (default: all)")
    parser.add_argument("--samples", metavar="N", help="training samples to use, or `all` (default: the analysis')")
    parser.add_argument("--seed", type=int, default=0, help="of everything drawn at random (default: 0)")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    add_trust_code(parser)
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    names = registry.select_analyses(None if arguments.only is None else split_words(arguments.only))
    own = parse_overrides(arguments.settings)
    wanted_threads = _checked_threads(own.pop("threads", 0))
    for name, value in own.items():
        if name not in names:
            raise ConfigError(f"unknown setting {name}; expected one of {', '.join(f'{n}.OPTION' for n in names)}")
        if not isinstance(value, dict):
            raise ConfigError(f"{name} = {value!r}; expected {name}.OPTION=VALUE, for instance hessian.top=10")
    display = ProgressDisplay()
    common: dict[str, Any] = {"seed": _checked_seed(arguments.seed)}
    if arguments.model is not None:
        common["model"] = arguments.model
    if arguments.samples is not None:
        common["samples"] = _number_of_samples(arguments.samples)
    if not arguments.quiet:
        common["progress"] = display
    # All options are checked before any work is done.
    options = {name: registry.analysis_keywords(name, common, own.get(name, {})) for name in names}
    folder = Path(arguments.folder)
    trusted_config(folder, arguments)
    say(f"{folder}: loading data and the last checkpoint", arguments)
    loaded = load_run(folder, trust_code=arguments.trust_code)
    # Small models are many times slower on several threads, above all where other work goes on.
    number = choose_threads(wanted_threads, loaded.context.step_flops)
    for name in names:
        try:
            with threads(number):
                result = registry.analyse(name, loaded, options[name])
        finally:
            display.close()
        print(result)
        _save(name, folder, result.to_dict(), loaded.context.experiment.config.method)
    return 0


def _save(name: str, folder: Path, values: dict[str, Any], method: str) -> None:
    path = folder / "analysis" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, compact_json.dumps(values).encode())
    print(f"  numbers          {path}")
    results = [{**values, "label": method_label(method)}]
    save_plot(path.with_suffix(".png"), lambda: registry.result_figure(name, results), label="plot             ")


def _number_of_samples(text: str) -> int | None:
    if text == "all":
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ConfigError(f"--samples {text}; expected a positive whole number, or all")
    return int(text)


def _checked_threads(number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise ConfigError(f"threads = {number!r}; expected a whole number, 0 for as many as the model can use")
    return number


def _checked_seed(seed: int) -> int:
    if seed < 0:
        raise ConfigError(f"--seed {seed}; expected 0 or more")
    return seed

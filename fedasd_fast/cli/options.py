"""Options that several subcommands share, and the configuration and run directory that result from them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, TypeVar

from .. import presets
from ..common import dotted, safe_yaml
from ..common.code_trust import require_trust
from ..common.files import read_bounded
from ..common.schema import ConfigError, merge
from ..config import Config, from_saved_yaml, from_yaml, parse_overrides

T = TypeVar("T")


def add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("preset", metavar="PRESET", help="a name from `fedasd presets`, or a configuration (.yaml)")
    parser.add_argument("settings", nargs="*", metavar="key=value", help="settings to change: optimizer.lr=0.05")
    add_data_dir(parser)


def add_data_dir(parser: argparse.ArgumentParser, default: str = "FEDASD_DATA") -> None:
    parser.add_argument("--data-dir", metavar="DIR", help=f"directory of the datasets (default: {default})")


def add_trust_code(parser: argparse.ArgumentParser) -> None:
    what = "run the code (package.module:Class) that a configuration file or run directory names"
    parser.add_argument("--trust-code", action="store_true", help=what)


def add_run_options(parser: argparse.ArgumentParser) -> None:
    add_trust_code(parser)
    parser.add_argument("--quiet", action="store_true", help="show no progress, only the summary")
    parser.add_argument("--tensorboard", action="store_true", help="write metrics for TensorBoard")
    parser.add_argument("--wandb", action="store_true", help="send metrics to Weights & Biases")
    project = "the project there, implies --wandb (default: WANDB_PROJECT, else fedasd)"
    parser.add_argument("--wandb-project", metavar="NAME", help=project)
    entity = "the user or team there, implies --wandb (default: WANDB_ENTITY, else your own)"
    parser.add_argument("--wandb-entity", metavar="NAME", help=entity)
    parser.add_argument("--mlflow", action="store_true", help="write metrics for MLflow")
    experiment = "the experiment there, implies --mlflow (default: MLFLOW_EXPERIMENT_NAME, else fedasd)"
    parser.add_argument("--mlflow-experiment", metavar="NAME", help=experiment)
    uri = "where to, as sqlite:///mlflow.db, implies --mlflow (default: MLFLOW_TRACKING_URI, else MLflow's own)"
    parser.add_argument("--mlflow-uri", metavar="URI", help=uri)


def configuration(arguments: argparse.Namespace, **changes: Any) -> Config:
    """The preset or file, changed by key=value words, then by options and by the caller.

    Code that a file names is refused without --trust-code; commands that lack the option run no code.
    """
    config, overrides = read_configuration(arguments, **changes)
    file = _configuration_file(arguments)
    if file is not None:
        if not hasattr(arguments, "trust_code"):
            return config
        require_trust(file, config.named_code(overrides), trusted=arguments.trust_code)
    config.create_method()  # which is imported: it may not be one, or not take its arguments
    return config


def read_configuration(arguments: argparse.Namespace, **changes: Any) -> tuple[Config, dict[str, Any]]:
    """The same without a check of the code that it names, none of which is imported; and what was changed."""
    if arguments.data_dir:
        changes["data_dir"] = arguments.data_dir
    overrides = merge(parse_overrides(arguments.settings), dotted.nest(changes))
    file = _configuration_file(arguments)
    if file is None:
        return presets.load(arguments.preset, overrides), overrides
    if not file.is_file():
        raise ConfigError(f"there is no file {file}; `fedasd presets` lists the presets, which need no file")
    values = safe_yaml.load(read_bounded(file, safe_yaml.MAX_BYTES), str(file))
    if (base := _base(values, file)) is not None:
        own = {"name": file.stem, **{key: value for key, value in values.items() if key != "base"}}
        return presets.load(base, merge(own, overrides)), overrides
    saved = (file.parent / "metrics.jsonl").is_file()  # by a run, perhaps of an older version
    config = from_saved_yaml(file) if saved else from_yaml(file)
    if config.name == Config.name:
        config = config.replace(name=file.stem)
    return config.replace(**overrides), overrides


def _configuration_file(arguments: argparse.Namespace) -> Path | None:
    """None: it is a preset that is named."""
    file = Path(arguments.preset)
    return file if file.suffix in (".yaml", ".yml") else None


def _base(values: Any, file: Path) -> str | None:
    """The preset that a configuration file builds on (`base: quickstart`)."""
    base = values.get("base") if isinstance(values, dict) else None
    if base is not None and not isinstance(base, str):
        raise ConfigError(f"{file}: base = {base!r}; expected the name of a preset")
    return base


def parse_seeds(text: str) -> list[int]:
    try:
        seeds = [int(word) for word in text.split(",")]
    except ValueError:
        raise ConfigError(f"--seeds {text}; expected whole numbers with commas between them, as in 0,1,2") from None
    return each_once(seeds, "seed")


def each_once(values: list[T], what: str) -> list[T]:
    """The values without repetitions, which are told: a repeated run is no further evidence."""
    once: list[T] = []
    for value in values:
        if value not in once:
            once.append(value)
        else:
            print(f"fedasd: {what} {value} is given more than once; it counts once", file=sys.stderr)
    return once


def split_words(text: str) -> list[str]:
    """`a, b` as ["a", "b"]."""
    return [word.strip() for word in text.split(",") if word.strip()]


def default_directory(config: Config) -> Path:
    return Path("runs") / f"{config.name}-{config.method}-seed{config.seed}"


def unused_directory(config: Config) -> Path:
    """The default one, with a number appended if it holds a run already."""
    first = default_directory(config)
    folder, number = first, 2
    while (folder / "config.yaml").exists():
        folder, number = first.with_name(f"{first.name}-{number}"), number + 1
    return folder

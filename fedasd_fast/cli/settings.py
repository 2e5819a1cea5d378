"""What the subcommands share: from words on the command line to a configuration and a folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .. import presets
from ..common.schema import ConfigError, merge
from ..config import Config, from_yaml, parse_overrides


def add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("preset", metavar="PRESET", help="a name from `fedasd presets`, or a configuration (.yaml)")
    parser.add_argument("settings", nargs="*", metavar="key=value", help="settings that differ: optimizer.lr=0.05")
    parser.add_argument("--data-dir", metavar="DIR", help="where datasets are (default: FEDASD_DATA)")


def add_running(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="no progress, only the summary")
    parser.add_argument("--tensorboard", action="store_true", help="write metrics for TensorBoard")
    parser.add_argument("--wandb", action="store_true", help="send metrics to Weights & Biases")


def configuration(arguments: argparse.Namespace, **changes: Any) -> Config:
    """The preset or file, then key=value, then what options and the caller say."""
    if arguments.data_dir:
        changes["data_dir"] = arguments.data_dir
    overrides = merge(parse_overrides(arguments.settings), presets.nested(changes))
    file = Path(arguments.preset)
    if file.suffix not in (".yaml", ".yml"):
        return presets.load(arguments.preset, overrides)
    if not file.is_file():
        raise ConfigError(f"there is no file {file}; `fedasd presets` lists the presets that need none")
    config = from_yaml(file)
    if config.name == Config.name:
        config = config.replace(name=file.stem)
    return config.replace(**overrides)


def usual_folder(config: Config) -> Path:
    return Path("runs") / f"{config.name}-{config.method}-seed{config.seed}"


def free_folder(config: Config) -> Path:
    """The usual one, with a number behind it if there is one already."""
    first = usual_folder(config)
    folder, number = first, 2
    while (folder / "config.yaml").exists():
        folder, number = first.with_name(f"{first.name}-{number}"), number + 1
    return folder

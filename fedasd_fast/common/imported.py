"""Things of the user's own, named by their import path `package.module:name`; found, not called."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from typing import Any

import torch

from .schema import ConfigError, nearest


def find_imported(setting: str, path: str, kind: str) -> Any:
    """What `path` names; errors say that the setting is it, and that `kind` (Class, function) was expected."""
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise ConfigError(f"{setting} = {path!r}; expected package.module:{kind}")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())  # as `python -m` does; a console script does not
    try:
        # What the module draws while it is imported, once a process, must not change the parameters drawn afterwards.
        with torch.random.fork_rng(devices=[]):
            module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{setting} = {path!r}: {error}; give the module as you would import it: installed, or in the current "
            "directory"
        ) from error
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            choices = [
                name for name, value in vars(found).items() if inspect.isclass(value) or inspect.isfunction(value)
            ]
            raise ConfigError(f"{setting} = {path!r}: {module_name} has no {part}{nearest(part, choices)}")
        found = getattr(found, part)
    return found


def keywords(function: Any) -> list[str]:
    """The parameters that may be passed by keyword; with '**' among them if any name is accepted."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ["**"]
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return [*names, "**"] if any(p.kind is p.VAR_KEYWORD for p in parameters) else names


def check_keywords(setting: str, path: str, known: list[str], args: Any) -> None:
    """Refuses arguments that the function does not take."""
    for key in args if "**" not in known else ():
        if key not in known:
            tail = nearest(key, known) if known else "; it takes no arguments"
            raise ConfigError(f"unknown argument {setting}_args.{key} of {path}{tail}")

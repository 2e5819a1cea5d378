"""Models of the user's own, named by their import path `package.module:Class`.

A path can name anything, `os:system` too: what it names is called only if it is a subclass of nn.Module, or a function
that says that it returns one.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ..common.schema import ConfigError, nearest


def build_imported(path: str, args: Mapping[str, Any], *, num_classes: int, input_shape: tuple[int, ...]) -> nn.Module:
    """`package.module:Class`, called with `args`, and with num_classes and input_shape if it takes them."""
    factory = _find(path)
    known = keywords(factory)
    given = {key: value for key, value in (("num_classes", num_classes), ("input_shape", input_shape)) if key in known}
    if "**" not in known:
        for key in args:
            if key not in known:
                tail = nearest(key, known) if known else "; it takes no arguments"
                raise ConfigError(f"unknown argument model_args.{key} of {path}{tail}")
    try:
        model = factory(**{**given, **args})
    except TypeError as error:
        raise ConfigError(f"model = {path} cannot be built with model_args {dict(args)}: {error}") from error
    if not isinstance(model, nn.Module):
        raise ConfigError(f"model = {path} returned a {type(model).__name__}; expected a torch.nn.Module")
    lazy = [name for name, parameter in model.named_parameters() if is_lazy(parameter)]
    if lazy:
        raise ConfigError(
            f"model = {path}: {lazy[0]} has no shape yet; lazy layers cannot be used: give the layer its sizes"
        )
    return model


def keywords(function: Callable[..., Any]) -> list[str]:
    """The parameters that may be passed by keyword; with '**' among them if any name is accepted."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ["**"]
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return [*names, "**"] if any(p.kind is p.VAR_KEYWORD for p in parameters) else names


def _find(path: str) -> Callable[..., Any]:
    module_name, _, class_name = path.partition(":")
    if not module_name or not class_name:
        raise ConfigError(f"model = {path!r}; expected package.module:Class")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())  # as `python -m` does; a console script does not
    try:
        # What the module draws while it is imported, once a process, must not change the parameters drawn afterwards.
        with torch.random.fork_rng(devices=[]):
            module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"model = {path!r}: {error}; give the module as you would import it: installed, or in the current directory"
        ) from error
    found: Any = module
    for part in class_name.split("."):
        if not hasattr(found, part):
            choices = [
                name for name, value in vars(found).items() if inspect.isclass(value) or inspect.isfunction(value)
            ]
            raise ConfigError(f"model = {path!r}: {module_name} has no {part}{nearest(part, choices)}")
        found = getattr(found, part)
    if not _is_module_class(found) and not _returns_a_module(found):
        kind = "class" if inspect.isclass(found) else type(found).__name__
        raise ConfigError(
            f"model = {path!r} is a {kind}; expected a subclass of torch.nn.Module, or a function that is annotated "
            "to return one (`def build(...) -> nn.Module:`)"
        )
    return found  # type: ignore[no-any-return]


def _is_module_class(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, nn.Module)


def _returns_a_module(value: Any) -> bool:
    try:
        return inspect.isfunction(value) and _is_module_class(typing.get_type_hints(value).get("return"))
    except Exception:  # annotations are any expressions
        return False

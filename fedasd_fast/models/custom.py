"""Models of the user's own, named by their import path `package.module:Class`.

A path can name anything, `os:system` too: what it names is called only if it is a subclass of nn.Module, or a function
that says that it returns one.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from ..common.imported import check_keywords, find_imported, keywords
from ..common.schema import ConfigError


def build_imported(path: str, args: Mapping[str, Any], *, num_classes: int, input_shape: tuple[int, ...]) -> nn.Module:
    """`package.module:Class`, called with `args`, and with num_classes and input_shape if it takes them."""
    factory = _find(path)
    known = keywords(factory)
    given = {key: value for key, value in (("num_classes", num_classes), ("input_shape", input_shape)) if key in known}
    check_keywords("model", path, known, args)
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


def _find(path: str) -> Callable[..., Any]:
    found = find_imported("model", path, "Class")
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

"""Data of the user's own, named by the import path of a function that makes them: `dataset=package.module:function`.

A path can name anything, `os:system` too: what it names is called only if it is a function that says that it returns
data.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from typing import Any

from ..common.imported import check_keywords, find_imported, keywords
from ..common.schema import ConfigError
from .federated import Dataset, FederatedData


def make_named(path: str, args: Mapping[str, Any], data_dir: str | None = None) -> Dataset | FederatedData:
    """What the function returns, called with `args`, and with data_dir if it takes it."""
    function = find_imported("dataset", path, "function")
    if not _returns_data(function):
        kind = "class" if inspect.isclass(function) else type(function).__name__
        raise ConfigError(
            f"dataset = {path!r} is a {kind}; expected a function that is annotated to return data (`def make(...) -> "
            "fa.data.Dataset:`, or fa.data.FederatedData)"
        )
    known = keywords(function)
    check_keywords("dataset", path, known, args)
    given = {"data_dir": data_dir} if "data_dir" in known else {}
    try:
        data = function(**{**given, **args})
    except TypeError as error:
        raise ConfigError(f"dataset = {path} cannot be made with dataset_args {dict(args)}: {error}") from error
    if not isinstance(data, (Dataset, FederatedData)):
        raise ConfigError(
            f"dataset = {path} returned a {type(data).__name__}; expected what fa.data.from_arrays, from_clients, "
            "from_torch or from_huggingface returns"
        )
    return data


def _returns_data(function: Any) -> bool:
    try:
        said = typing.get_type_hints(function).get("return") if inspect.isfunction(function) else None
    except Exception:  # annotations are any expressions
        return False
    kinds = typing.get_args(said) or (said,)
    return all(inspect.isclass(kind) and issubclass(kind, (Dataset, FederatedData)) for kind in kinds)

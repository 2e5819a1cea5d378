"""The analyses by name.  A new one is a line in ANALYSES.

An analysis is a function of an OpenedRun.  Its keywords are its options: those that several have in common (COMMON) are
given once for all, its own as `name.option=value`.  It returns a dataclass with to_dict(), and str() of that is what
the command prints.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module, util
from typing import TYPE_CHECKING, Any, Protocol

from ..common.schema import ConfigError, convert, nearest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .loaded_run import OpenedRun

COMMON = ("model", "samples", "seed", "tell")


class Result(Protocol):
    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Analysis:
    function: str  # module:name in this package; imported when it is needed
    figure: str | None = None  # draws the results of several runs, mappings as in their files
    one_run: bool = False  # the figure is of one run only
    needs: tuple[str, ...] = ()  # modules of the extra `analysis`


ANALYSES: dict[str, Analysis] = {
    "hessian": Analysis("hessian:hessian", "plots.hessian:hessian_figure", needs=("curvlinops", "scipy")),
    "dissimilarity": Analysis("dissimilarity:dissimilarity", "plots.hessian:dissimilarity_figure"),
    "forgetting": Analysis("forgetting:forgetting", "plots.forgetting:forgetting_figure", one_run=True),
    "weights": Analysis("weights:weights", "plots.forgetting:weights_figure", one_run=True),
    "drift": Analysis("drift:drift", "plots.forgetting:drift_figure"),
    "cost": Analysis("cost:cost", "plots.forgetting:cost_figure"),
}


def chosen(names: Iterable[str] | None = None) -> list[str]:
    """These analyses, all if None; refuses names that there are not and analyses that lack a library."""
    wanted = list(ANALYSES) if names is None else list(dict.fromkeys(names))
    for name in wanted:
        if name not in ANALYSES:
            raise ConfigError(f"there is no analysis {name!r}{nearest(name, ANALYSES)}")
    if not wanted:
        raise ConfigError(f"no analysis is named; expected some of {', '.join(ANALYSES)}")
    for name in wanted:
        if missing := [module for module in ANALYSES[name].needs if util.find_spec(module) is None]:
            raise ModuleNotFoundError(
                f"the analysis {name} needs {' and '.join(missing)}: pip install 'fedasd-fast[analysis]' (or leave it "
                "out with --only)"
            )
    return wanted


def keywords(name: str, common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """What the analysis is called with: of the common options those that it has, and all of its own, checked."""
    function = _imported(ANALYSES[name].function)
    options = _options(function)
    given = {key: value for key, value in common.items() if key in options}
    for key in own:
        if key not in options or key == "tell":
            known = [option for option in options if option != "tell"]
            raise ConfigError(f"unknown setting {name}.{key}{nearest(key, known)}")
    hints = typing.get_type_hints(function)
    return given | {key: convert(hints[key], value, f"{name}.{key}") for key, value in own.items()}


def compute(name: str, run: OpenedRun, options: Mapping[str, Any]) -> Result:
    result: Result = _imported(ANALYSES[name].function)(run, **options)
    return result


def draw(name: str, results: Iterable[Mapping[str, Any]]) -> Figure | None:
    """The figure of results as they are in files, each with the "label" of its run; None: there is none."""
    path = ANALYSES[name].figure
    figure: Figure | None = _imported(path)(list(results)) if path else None
    return figure


def _options(function: Callable[..., Any]) -> list[str]:
    return [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]


def _imported(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    function: Callable[..., Any] = getattr(import_module(f".{module}", __package__), name)
    return function

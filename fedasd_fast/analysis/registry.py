"""The analyses by name.  To add one, add an entry to ANALYSES.

An analysis is a function of a LoadedRun.  Its keyword-only parameters are its options: those that several analyses have
(COMMON_OPTIONS) are given once for all of them, its own as `name.option=value`.  It returns a dataclass with to_dict(),
whose str() the command prints.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import util
from typing import TYPE_CHECKING, Any

from ..common.schema import ConfigError, convert, nearest
from ..simulation.system.process_state import own_process_state
from .cost import cost
from .dissimilarity import dissimilarity
from .drift import drift
from .forgetting import forgetting
from .hessian import hessian
from .loaded_run import LoadedRun
from .plots.cost import cost_figure
from .plots.dissimilarity import dissimilarity_figure
from .plots.drift import drift_figure
from .plots.forgetting import forgetting_figure
from .plots.hessian import hessian_figure
from .plots.weights import weights_figure
from .result import AnalysisResult
from .weights import weights

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMMON_OPTIONS = ("model", "samples", "seed", "progress")


@dataclass(frozen=True)
class Analysis:
    function: Callable[..., AnalysisResult]
    figure: Callable[..., Figure] | None = None  # plots the results of several runs, mappings as in their files
    one_run: bool = False  # the figure shows one run only
    needs: tuple[str, ...] = ()  # modules of the extra `analysis`


ANALYSES: dict[str, Analysis] = {
    "hessian": Analysis(hessian, hessian_figure, needs=("curvlinops", "scipy")),
    "dissimilarity": Analysis(dissimilarity, dissimilarity_figure),
    "forgetting": Analysis(forgetting, forgetting_figure, one_run=True),
    "weights": Analysis(weights, weights_figure, one_run=True),
    "drift": Analysis(drift, drift_figure),
    "cost": Analysis(cost, cost_figure),
}


def select_analyses(names: Iterable[str] | None = None) -> list[str]:
    """These analyses, or all; refuses unknown names and analyses whose libraries are missing."""
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


def analysis_keywords(name: str, common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords to call an analysis with: the common options that it has, and all of its own, checked."""
    function = ANALYSES[name].function
    options = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    given = {key: value for key, value in common.items() if key in options}
    for key in own:
        if key not in options or key == "progress":
            known = [option for option in options if option != "progress"]
            raise ConfigError(f"unknown setting {name}.{key}{nearest(key, known)}")
    hints = typing.get_type_hints(function)
    return given | {key: convert(hints[key], value, f"{name}.{key}") for key, value in own.items()}


def analyse(name: str, run: LoadedRun, options: Mapping[str, Any]) -> AnalysisResult:
    with own_process_state():
        return ANALYSES[name].function(run, **options)


def result_figure(name: str, results: Iterable[Mapping[str, Any]]) -> Figure | None:
    """The figure of results as they are in files, each with the "label" of its run; None if there is none."""
    figure = ANALYSES[name].figure
    return figure(list(results)) if figure else None

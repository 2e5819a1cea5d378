"""Common layout of the analysis plots: heading, caption, legend; and the results that they accept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ...common.plotting import GREY, style_axes
from ...common.schema import ConfigError
from ..result import AnalysisResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


PlotInput: TypeAlias = AnalysisResult | Mapping[str, Any]  # the result of an analysis, or its JSON
LabelledResults: TypeAlias = Mapping[str, PlotInput] | Sequence[Mapping[str, Any]]  # by label, or each with a "label"

MARKERS = "os^Dv<>"  # so that colour is not the only difference
_DASHES = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (7, 2, 1.5, 2)))


def single_result(found: PlotInput | Sequence[PlotInput]) -> Mapping[str, Any]:
    """For plots of one run."""
    if not isinstance(found, Sequence):
        return _as_mapping(found)
    if len(found) != 1:
        raise ConfigError(f"{len(found)} results for a plot of one run; plot each of them by itself")
    return _as_mapping(found[0])


def labelled_results(runs: LabelledResults) -> list[tuple[str, Mapping[str, Any]]]:
    """For plots of several runs: pairs of a label and a result."""
    if not runs:
        raise ConfigError("no run to plot; give at least one, by its label")
    if isinstance(runs, Mapping):
        return [(label, _as_mapping(found)) for label, found in runs.items()]
    return [(str(found.get("label", "run")), found) for found in runs]


def line_dash(number: int) -> Any:
    return _DASHES[number % len(_DASHES)]


def add_heading(figure: Figure, title: str, subtitle: str, caption: str) -> None:
    figure.text(0.07, 0.935, title, fontsize=13, weight="bold")
    figure.text(0.07, 0.885, subtitle, fontsize=9, color=GREY)
    figure.text(0.07, 0.02, caption, fontsize=8, color=GREY, linespacing=1.4)


def style_panel(axes: Axes, size: float = 8.5) -> None:
    style_axes(axes)
    axes.tick_params(labelsize=size)


def add_side_legend(axes: Axes) -> None:
    """To the right of the axes, if there are any labels."""
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8)


def _as_mapping(found: PlotInput) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else found.to_dict()

"""Plot of gradient dissimilarity against lambda, one line per run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...common.plotting import GREY, new_figure, palette_colour, style_axes
from ..dissimilarity_ratio import DissimilarityRatio, Parabola
from .layout import add_side_legend, labelled_results

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def dissimilarity_figure(results: Sequence[Mapping[str, Any]]) -> Figure:
    """G_d against lambda, with normalised weights; a dot marks the run's own lambda."""
    figure = new_figure()
    axes = figure.add_axes((0.1, 0.17, 0.62, 0.7))
    figure.text(0.1, 0.93, "Gradient dissimilarity of the clients", fontsize=13, weight="bold")
    for number, (label, result) in enumerate(labelled_results(results)):
        ratio, end, colour = _ratio(result["normalised"]), max(*result["lambdas"], 1.0), palette_colour(number)
        grid = [end * i / 200 for i in range(201)]
        axes.plot(*_points(ratio, grid), color=colour, linewidth=2, label=label)
        if result.get("uniform"):
            axes.plot(*_points(_ratio(result["uniform"]), grid), color=colour, linestyle=":")
        if (own := ratio(result["weight"])) is not None:
            axes.plot([result["weight"]], [own], "o", color=colour, markersize=6, clip_on=False)
    axes.axhline(1, color=GREY, linestyle=(0, (5, 4)), linewidth=1)
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.set_xlabel("weight of the distillation, lambda")
    axes.set_ylabel("$G_d$")
    style_axes(axes)
    add_side_legend(axes)
    caption = "Dashed: 1, all gradients equal. Dot: the lambda that the run was trained with."
    if any(result.get("uniform") for result in results):
        caption += " Dotted: with uniform weights."
    figure.text(0.1, 0.025, caption, fontsize=8, color=GREY)
    return figure


def _points(ratio: DissimilarityRatio, grid: Sequence[float]) -> tuple[list[float], list[float]]:
    defined = [(x, value) for x in grid if (value := ratio(x)) is not None]
    return [x for x, _ in defined], [value for _, value in defined]


def _ratio(curve: Mapping[str, Any]) -> DissimilarityRatio:
    values = curve["ratio"]
    return DissimilarityRatio(Parabola(**values["above"]), Parabola(**values["below"]))

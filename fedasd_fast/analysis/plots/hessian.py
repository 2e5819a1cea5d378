"""Figures of the Hessian's spectrum and of gradient dissimilarity, one line for each run.

They take results as they are in RUN/analysis/NAME.json, each with the "label" of its run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...common.formatting import written
from ...common.plotting import GREY, colour, new_figure
from ..dissimilarity_ratio import Parabola, Ratio

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FLOOR = 1e-7  # below this a density is not drawn, as in PyHessian's figures
_LEFT, _WIDTH = 0.1, 0.62


def hessian_figure(results: Sequence[Mapping[str, Any]]) -> Figure:
    """Density of eigenvalues, on a logarithmic scale; the names tell top eigenvalue and trace."""
    figure, axes = _begin("Eigenvalues of the Hessian of the training loss")
    for number, result in enumerate(results):
        spectrum = result["spectrum"]
        density = [max(value, _FLOOR) for value in spectrum["density"]]
        name = f"{_label(result)}\ntop {spectrum['top'][0]:.3g}, trace {written(spectrum['trace'])}"
        axes.semilogy(spectrum["grid"], density, color=colour(number), linewidth=1.4, label=name)
        axes.plot(spectrum["top"], [2 * _FLOOR] * len(spectrum["top"]), "|", color=colour(number), markersize=9)
    axes.set_ylim(bottom=_FLOOR)
    axes.set_xlabel("eigenvalue")
    axes.set_ylabel("density")
    samples = sorted({f"{result['samples']} training samples" for result in results})
    return _end(figure, axes, f"Ticks: the largest eigenvalues. Cross-entropy on {', '.join(samples)}.")


def dissimilarity_figure(results: Sequence[Mapping[str, Any]]) -> Figure:
    """G_d against lambda, with normalised weights; a dot is the run's own lambda."""
    figure, axes = _begin("Gradient dissimilarity of the clients")
    for number, result in enumerate(results):
        ratio, end = _ratio(result["normalised"]["ratio"]), max(*result["lambdas"], 1.0)
        grid = [end * i / 200 for i in range(201)]
        axes.plot(*_points(ratio, grid), color=colour(number), linewidth=2, label=_label(result))
        if result.get("uniform"):
            axes.plot(*_points(_ratio(result["uniform"]["ratio"]), grid), color=colour(number), linestyle=":")
        if (own := ratio(result["weight"])) is not None:
            axes.plot([result["weight"]], [own], "o", color=colour(number), markersize=6, clip_on=False)
    axes.axhline(1, color=GREY, linestyle=(0, (5, 4)), linewidth=1)
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.set_xlabel("weight of the distillation, lambda")
    axes.set_ylabel("$G_d$")
    caption = "Dashed: 1, all gradients equal. Dot: the lambda that the run was trained with."
    if any(result.get("uniform") for result in results):
        caption += " Dotted: with uniform weights."
    return _end(figure, axes, caption)


def _begin(title: str) -> tuple[Figure, Axes]:
    figure = new_figure()
    axes = figure.add_axes((_LEFT, 0.17, _WIDTH, 0.7))
    figure.text(_LEFT, 0.93, title, fontsize=13, weight="bold")
    return figure, axes


def _end(figure: Figure, axes: Axes, caption: str) -> Figure:
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8)
    figure.text(_LEFT, 0.025, caption, fontsize=8, color=GREY)
    return figure


def _points(ratio: Ratio, grid: Sequence[float]) -> tuple[list[float], list[float]]:
    kept = [(x, value) for x in grid if (value := ratio(x)) is not None]
    return [x for x, _ in kept], [value for _, value in kept]


def _ratio(values: Mapping[str, Mapping[str, float]]) -> Ratio:
    return Ratio(Parabola(**values["above"]), Parabola(**values["below"]))


def _label(result: Mapping[str, Any]) -> str:
    return str(result.get("label", "run"))

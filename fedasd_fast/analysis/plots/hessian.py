"""Plot of the Hessian's spectral density, one line per run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...common.formatting import format_number
from ...common.plotting import GREY, new_figure, palette_colour, style_axes
from .layout import add_side_legend, labelled_results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MIN_DENSITY = 1e-7  # smaller densities are not shown, as in PyHessian's figures


def hessian_figure(results: Sequence[Mapping[str, Any]]) -> Figure:
    """Density of eigenvalues on a logarithmic scale; the legend has the top eigenvalue and the trace."""
    figure = new_figure()
    axes = figure.add_axes((0.1, 0.17, 0.62, 0.7))
    figure.text(0.1, 0.93, "Eigenvalues of the Hessian of the training loss", fontsize=13, weight="bold")
    for number, (label, result) in enumerate(labelled_results(results)):
        spectrum, colour = result["spectrum"], palette_colour(number)
        density = [max(value, _MIN_DENSITY) for value in spectrum["density"]]
        name = f"{label}\ntop {spectrum['top'][0]:.3g}, trace {format_number(spectrum['trace'])}"
        axes.semilogy(spectrum["grid"], density, color=colour, linewidth=1.4, label=name)
        axes.plot(spectrum["top"], [2 * _MIN_DENSITY] * len(spectrum["top"]), "|", color=colour, markersize=9)
    axes.set_ylim(bottom=_MIN_DENSITY)
    axes.set_xlabel("eigenvalue")
    axes.set_ylabel("density")
    style_axes(axes)
    add_side_legend(axes)
    samples = sorted({f"{result['samples']} training samples" for result in results})
    caption = f"Ticks: the largest eigenvalues. Cross-entropy on {', '.join(samples)}."
    figure.text(0.1, 0.025, caption, fontsize=8, color=GREY)
    return figure

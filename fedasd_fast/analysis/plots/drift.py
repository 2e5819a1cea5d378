"""Plot of the drift of the global model and of the clients' models, one line per run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...common.plotting import new_figure, palette_colour
from .layout import LabelledResults, add_heading, labelled_results, line_dash, style_panel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANELS = (("drift", "global model: ||w(t) - w(t-1)||"), ("client_distance", "clients: mean of ||w_k - w(t-1)||"))


def drift_figure(runs: LabelledResults, *, title: str = "How far a round moves the models") -> Figure:
    """Left: the global model from round to round.  Right: the clients' models from the global one."""
    drifts = labelled_results(runs)
    figure = new_figure(10.5, 4.6)
    windows = sorted({d["window"] for _, d in drifts})
    add_heading(
        figure, title, "Euclidean norm of the change of all parameters",
        f"Thin: each round; thick: mean of the last {' or '.join(map(str, windows))} rounds. All curves fall with the "
        "learning rate.\nLook for: whether a curve with ASD stays below the one without, and how much smaller the "
        "global model's steps are than the clients': the rest cancels out.",
    )  # fmt: skip
    for column, (key, name) in enumerate(_PANELS):
        axes = figure.add_axes((0.07 + 0.48 * column, 0.22, 0.42, 0.58))
        for i, (label, d) in enumerate(drifts):
            colour, smoothed = palette_colour(i), d[f"{key}_smoothed"]
            axes.plot(d["rounds"], d[key], color=colour, linewidth=0.6, alpha=0.3)
            axes.plot(d["rounds"], smoothed, color=colour, linewidth=1.9, linestyle=line_dash(i), label=label)
        axes.set_xlabel("round")
        axes.set_title(name, fontsize=9.5, loc="left")
        axes.set_ylim(bottom=0)
        if column == 0:
            axes.legend(frameon=False, fontsize=8, handlelength=3.2)
        style_panel(axes)
    return figure

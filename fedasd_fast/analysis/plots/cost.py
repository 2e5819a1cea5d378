"""Plot of accuracy against forward passes and against seconds, one line per run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...common.formatting import MODEL_DESCRIPTIONS
from ...common.plotting import GREY, new_figure, palette_colour
from ...common.schema import ConfigError
from .layout import LabelledResults, add_heading, labelled_results, line_dash, style_panel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANELS = (("units", "forward passes of a participant, summed over rounds"), ("seconds", "seconds of training"))


def cost_figure(runs: LabelledResults, *, model: str | None = None, title: str = "Accuracy against cost") -> Figure:
    """Left: against forward passes.  Right: against seconds of training.

    model None: `all`, or if a run did not evaluate that, the first model that the first run evaluated.
    """
    costs = labelled_results(runs)
    model = model or ("all" if all("all" in c["accuracy"] for _, c in costs) else next(iter(costs[0][1]["accuracy"])))
    for label, c in costs:
        if model not in c["accuracy"]:
            raise ConfigError(f"{label} did not evaluate the model {model}; choose one of {', '.join(c['accuracy'])}")
    budget = min(c["units"][-1] for _, c in costs)
    figure = new_figure(10.5, 4.6)
    recomputed = any(c["teacher"] == "recompute" for _, c in costs)
    add_heading(
        figure, title, f"evaluated: {MODEL_DESCRIPTIONS[model]}",
        "Unit: a forward pass over all samples of a client; backward passes are left out. Seconds are those of the "
        "machine of the run.\n"
        + ("Dotted: with a cached teacher, the paper's count. " if recomputed else "")
        + "Look for: the higher curve at the same cost; the thin vertical line is the cost that all runs have reached.",
    )  # fmt: skip
    for column, (key, name) in enumerate(_PANELS):
        axes = figure.add_axes((0.07 + 0.48 * column, 0.22, 0.42, 0.6))
        for i, (label, c) in enumerate(costs):
            colour = palette_colour(i)
            values = [math.nan if v is None else v for v in c["accuracy"][model]]
            marker = "o" if len(values) < 3 else None
            text = f"{label}, {c['units'][-1] / c['rounds'][-1]:.3g} per round"
            axes.plot(c[key], values, color=colour, linewidth=1.9, linestyle=line_dash(i), marker=marker, label=text)
            if key == "units" and c["units_cached"] != c["units"]:
                axes.plot(c["units_cached"], values, color=colour, linewidth=1.2, linestyle=":")
        axes.set_xlabel(name)
        axes.set_xlim(left=0)
        axes.set_ylabel("test accuracy (%)")
        if column == 0:
            axes.axvline(budget, color=GREY, linewidth=0.8)
            axes.legend(edgecolor="none", framealpha=1, fontsize=8, loc="lower right", handlelength=3.2)
        style_panel(axes)
    return figure

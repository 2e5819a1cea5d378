"""Plot of ASD's weights and the teacher's entropy for one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...common.plotting import GREY, new_figure, palette_colour
from .layout import PlotInput, add_heading, single_result, style_panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def weights_figure(found: PlotInput | Sequence[PlotInput], *, title: str = "Distribution of ASD's weights") -> Figure:
    """Histograms of alpha, over batches and over clients, and of the teacher's entropy; the weight of rare labels."""
    w = single_result(found)
    figure = new_figure(10.5, 4.6)
    add_heading(
        figure, title,
        f"{len(w['clients'])} clients, global model after {w['round']} rounds"
        + ("" if w["applied"] else "; this run does not train with these weights: it shows what ASD would do"),
        f"The effective number of samples is {w['effective_share']:.0%} of a batch on average. Labels that a client "
        f"has little of: {w['rare_samples']:.0%} of its samples, {w['rare_weight']:.0%} of the weight.\n"
        "Look for: a wide first histogram (a few samples dominate the batch), and dots far above the line (the weight "
        "is on rare labels).",
    )  # fmt: skip
    first, second, third = (figure.add_axes((left, 0.24, 0.25, 0.56)) for left in (0.07, 0.40, 0.73))
    _draw_alpha(first, w)
    counts = np.array(w["entropy"]["counts"])
    second.stairs(counts / max(1, counts.sum()), w["entropy"]["edges"], color=palette_colour(2), fill=True, alpha=0.7)
    second.set_xlabel("teacher's entropy (nats; up to log C)")
    second.set_xlim(0, w["entropy"]["edges"][-1])
    third.plot((0, 1), (0, 1), color=GREY, linewidth=0.9, linestyle=":")
    x, y = ([own[key] for own in w["clients"]] for key in ("rare_samples", "rare_weight"))
    third.scatter(x, y, color=palette_colour(1), s=22)
    third.set(xlim=(0, 1), ylim=(0, 1), xlabel="rare labels: proportion of samples", ylabel="proportion of weight")
    for axes in (first, second, third):
        style_panel(axes)
    return figure


def _draw_alpha(axes: Axes, w: Mapping[str, Any]) -> None:
    ends: list[float] = [1.0]
    for i, (key, name) in enumerate((("in_batch", "in a batch"), ("in_client", "in a client"))):
        edges, counts = w[key]["edges"], np.array(w[key]["counts"])
        used = np.nonzero(counts)[0]
        ends += [edges[j] for j in used] + [edges[j + 1] for j in used]
        proportions = counts / max(1, counts.sum())
        axes.stairs(proportions, edges, color=palette_colour(i), linewidth=1.6, label=name)
        axes.stairs(proportions, edges, color=palette_colour(i), fill=True, alpha=0.2)
    axes.set_xscale("log", base=2)
    axes.set_xlim(min(ends), max(ends))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}" if x >= 1 else f"1/{1 / x:g}")
    axes.axvline(1, color=GREY, linewidth=0.9, linestyle=":")
    axes.set_xlabel("alpha / uniform weight (dotted)")
    axes.set_ylabel("proportion of samples")
    axes.legend(frameon=False, fontsize=8)

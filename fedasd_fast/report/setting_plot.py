"""Accuracy against a setting: what a sweep found, and what the paper found at the same points."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..common.formatting import MODELS, pretty
from ..common.plotting import GREY, PALETTE, colour, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMES = {
    "clients": "number of clients",
    "participation": "share of clients that takes part in a round",
    "asd.weight": "weight of ASD (lambda)",
    "asd.temperature": "temperature of ASD (tau)",
}
_MARKERS = "osD^vP*"


@dataclass(frozen=True)
class Point:
    """Accuracies (%) of the seeds that were run with these settings, and the paper's."""

    settings: Mapping[str, Any]
    values: Sequence[float]
    paper: float | None = None


def numeric_axis(axes: Mapping[str, Sequence[Any]]) -> str | None:
    """The last axis that is numbers, and more than one of them: what there is to draw accuracy against."""
    numbers = [
        key
        for key, values in axes.items()
        if len(values) > 1 and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
    ]
    return numbers[-1] if numbers else None


def over_figure(points: Sequence[Point], axis: str, *, model: str, title: str, subtitle: str = "") -> Figure:
    """A line for each combination of the other settings; a hollow mark on a dashed line is the paper's number."""
    lines: dict[str, list[Point]] = {}
    for point in points:
        lines.setdefault(_label(point, points, axis), []).append(point)
    width = 8.2 + 0.07 * max(map(len, lines), default=0)
    figure = new_figure(width)
    axes = figure.add_axes((0.72 / width, 0.17, 6.0 / width, 0.67))
    for i, (label, line) in enumerate(lines.items()):
        look, marker = colour(i), _MARKERS[i // len(PALETTE) % len(_MARKERS)]
        ran = sorted((p.settings[axis], statistics.fmean(p.values), p.values) for p in line if p.values)
        bars = [statistics.stdev(values) if len(values) > 1 else 0.0 for _, _, values in ran]
        at, means = [x for x, _, _ in ran], [mean for _, mean, _ in ran]
        axes.errorbar(at, means, yerr=bars if any(bars) else None, color=look, marker=marker, label=label, capsize=3)
        paper = sorted((p.settings[axis], p.paper) for p in line if p.paper is not None)
        (dashed,) = axes.plot([x for x, _ in paper], [mean for _, mean in paper], color=look, marker=marker)
        dashed.set(markerfacecolor="white", linestyle="--", linewidth=1)
    ticks = sorted({point.settings[axis] for point in points})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xlabel(_NAMES.get(axis, axis))
    axes.set_ylabel("test accuracy (%)")
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(y=0.08)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
    caption = [f"Evaluated: {MODELS.get(model, model)}"]
    if any(len(point.values) > 1 for point in points):
        caption.append("bars: standard deviation over seeds")
    if any(point.paper is not None for point in points):
        caption.append("hollow marks: the paper")
    figure.text(0.72 / width, 0.93, title, fontsize=13, weight="bold")
    figure.text(0.72 / width, 0.875, subtitle, fontsize=9, color=GREY)
    figure.text(0.72 / width, 0.025, "; ".join(caption) + ".", fontsize=8, color=GREY)
    return figure


def _label(point: Point, points: Sequence[Point], axis: str) -> str:
    """What tells this line from the others."""
    keys = [key for key in point.settings if key != axis and len({str(p.settings[key]) for p in points}) > 1]
    words = (pretty(point.settings[key]) if key == "method" else f"{key}={point.settings[key]}" for key in keys)
    return ", ".join(words)

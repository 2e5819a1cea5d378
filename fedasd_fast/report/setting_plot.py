"""Plot of accuracy against a setting: the results of a sweep or a grid, and the paper's at the same values."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..common.formatting import MODEL_DESCRIPTIONS, method_label
from ..common.plotting import GREY, PALETTE, new_figure, palette_colour, style_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_AXIS_LABELS = {
    "clients": "number of clients",
    "participation": "proportion of clients that participate in a round",
    "asd.weight": "weight of ASD (lambda)",
    "asd.temperature": "temperature of ASD (tau)",
}
_MARKERS = "osD^vP*"


@dataclass(frozen=True)
class SettingPoint:
    """Accuracies (%) of the seeds that were run with these settings, and the paper's."""

    settings: Mapping[str, Any]
    values: Sequence[float]
    paper: float | None = None


def numeric_axis(axes: Mapping[str, Sequence[Any]]) -> str | None:
    """The last setting that takes more than one value, all of them numbers: what accuracy can be plotted against."""
    numbers = [
        key
        for key, values in axes.items()
        if len(values) > 1 and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
    ]
    return numbers[-1] if numbers else None


def setting_figure(points: Sequence[SettingPoint], axis: str, *, model: str, title: str, subtitle: str = "") -> Figure:
    """A line for each combination of the other settings; hollow markers on dashed lines are the paper's numbers."""
    lines: dict[str, list[SettingPoint]] = {}
    for point in points:
        lines.setdefault(_line_label(point, points, axis), []).append(point)
    width = 8.2 + 0.07 * max(map(len, lines), default=0)
    figure = new_figure(width)
    axes = figure.add_axes((0.72 / width, 0.17, 6.0 / width, 0.67))
    for i, (label, line) in enumerate(lines.items()):
        colour, marker = palette_colour(i), _MARKERS[i // len(PALETTE) % len(_MARKERS)]
        measured = sorted((p.settings[axis], statistics.fmean(p.values), p.values) for p in line if p.values)
        bars = [statistics.stdev(values) if len(values) > 1 else 0.0 for _, _, values in measured]
        at, means = [x for x, _, _ in measured], [mean for _, mean, _ in measured]
        axes.errorbar(at, means, yerr=bars if any(bars) else None, color=colour, marker=marker, label=label, capsize=3)
        paper = sorted((p.settings[axis], p.paper) for p in line if p.paper is not None)
        (dashed,) = axes.plot([x for x, _ in paper], [mean for _, mean in paper], color=colour, marker=marker)
        dashed.set(markerfacecolor="white", linestyle="--", linewidth=1)
    ticks = sorted({point.settings[axis] for point in points})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xlabel(_AXIS_LABELS.get(axis, axis))
    axes.set_ylabel("test accuracy (%)")
    style_axes(axes)
    axes.margins(y=0.08)
    if any(lines):  # a single line needs no label
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
    caption = [f"Evaluated: {MODEL_DESCRIPTIONS.get(model, model)}"]
    if any(len(point.values) > 1 for point in points):
        caption.append("bars: standard deviation over seeds")
    if any(point.paper is not None for point in points):
        caption.append("hollow markers: the paper")
    figure.text(0.72 / width, 0.93, title, fontsize=13, weight="bold")
    figure.text(0.72 / width, 0.875, subtitle, fontsize=9, color=GREY)
    figure.text(0.72 / width, 0.025, "; ".join(caption) + ".", fontsize=8, color=GREY)
    return figure


def _line_label(point: SettingPoint, points: Sequence[SettingPoint], axis: str) -> str:
    """The settings in which this line differs from the others."""
    keys = [key for key in point.settings if key != axis and len({str(p.settings[key]) for p in points}) > 1]
    words = (method_label(point.settings[key]) if key == "method" else f"{key}={point.settings[key]}" for key in keys)
    return ", ".join(words)

"""Plot of forgetting for one run: the change of accuracy by label group, and for every client and class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...common.formatting import method_label
from ...common.plotting import GREY, new_figure, palette_colour
from ..label_groups import LABEL_GROUPS
from .layout import MARKERS, PlotInput, add_heading, single_result, style_panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GROUP_NAMES = {"much": "has much of", "little": "has little of", "none": "has none of"}


def forgetting_figure(
    found: PlotInput | Sequence[PlotInput], *, title: str = "Change of accuracy in one round of local training"
) -> Figure:
    """Left: mean change on the labels that a client has much, little and none of.  Right: every client and class."""
    f = single_result(found)
    methods = list(f["after"])
    figure = new_figure(10.5, 5.0)
    add_heading(
        figure, title,
        f"test accuracy of each class, {len(f['clients'])} clients, after {f['round']} rounds of the run; "
        f"{f['overall_before']:.1f} % before",
        "Left: mean over clients and classes, with the standard error over clients; much or little: above or below the "
        "client's own uniform proportion.\nRight: a dot is a class of a client; the line is the mean of equally many "
        "dots. Look for: dots far below 0 at a proportion of 0.",
    )  # fmt: skip
    _draw_groups(figure.add_axes((0.07, 0.2, 0.36, 0.6)), f, methods)
    _draw_scatters(figure, f, methods)
    return figure


def _draw_groups(axes: Axes, f: Mapping[str, Any], methods: Sequence[str]) -> None:
    for i, method in enumerate(methods):
        at = [j + 0.16 * (i - (len(methods) - 1) / 2) for j in range(len(LABEL_GROUPS))]
        groups = [f["groups"][method][group] for group in LABEL_GROUPS]
        known = [(x, g["mean"], g["error"] or 0.0) for x, g in zip(at, groups, strict=True) if g["mean"] is not None]
        x, mean, error = zip(*known, strict=True) if known else ((), (), ())
        axes.errorbar(
            x, mean, yerr=error, fmt=MARKERS[i % len(MARKERS)], color=palette_colour(i), markersize=6, capsize=2,
            linewidth=1, label=f"{method_label(method)}  {f['overall'][method]:.1f} %",
        )  # fmt: skip
    axes.axhline(0, color=GREY, linewidth=0.8)
    pairs = [f["groups"][methods[0]][group]["pairs"] for group in LABEL_GROUPS]
    names = [f"{_GROUP_NAMES[g]}\n({n:,} pairs)" for g, n in zip(LABEL_GROUPS, pairs, strict=True)]
    axes.set_xticks(range(len(LABEL_GROUPS)), names)
    axes.set_xlim(-0.5, len(LABEL_GROUPS) - 0.5)
    axes.set_xlabel("labels that the client ...")
    axes.set_ylabel("change of accuracy (points)")
    axes.legend(frameon=False, fontsize=8, title="accuracy after", title_fontsize=8)
    style_panel(axes)


def _draw_scatters(figure: Figure, f: Mapping[str, Any], methods: Sequence[str]) -> None:
    """A panel per method, with the same axes: the change of each class of each client against its proportion."""
    columns = 1 if len(methods) == 1 else 2
    rows = -(-len(methods) // columns)
    width, height = 0.47 / columns, 0.6 / rows
    before = np.array([math.nan if v is None else v for v in f["before"]])
    proportion = np.array(f["shares"])
    after = {m: np.array([[math.nan if v is None else v for v in row] for row in f["after"][m]]) for m in methods}
    changes = {m: after[m] - before for m in methods}
    every = np.array([*changes.values()])
    low, high = min(0.0, float(np.nanmin(every))) - 1, max(0.0, float(np.nanmax(every))) + 1
    for i, method in enumerate(methods):
        row, column = divmod(i, columns)
        axes = figure.add_axes((0.51 + column * width, 0.2 + (rows - 1 - row) * height, 0.9 * width, 0.84 * height))
        tested = ~np.isnan(changes[method])
        x, y = proportion[tested], changes[method][tested]
        axes.axhline(0, color=GREY, linewidth=0.8)
        axes.scatter(100 * x, y, s=8, color=palette_colour(i), alpha=0.35, linewidths=0)
        line = _binned_means(x, y)
        axes.plot(100 * line[0], line[1], color="#222222", linewidth=1.4, marker=".", markersize=4)
        axes.set_ylim(low, high)
        axes.set_xscale("symlog", linthresh=1.0)
        axes.set_xlim(-0.12, 115)
        ticks = (0, 1, 10, 100)
        axes.set_xticks(ticks, [f"{tick} %" for tick in ticks] if row == rows - 1 else [""] * len(ticks))
        axes.minorticks_off()
        if column:
            axes.set_yticklabels([])
        if row == rows - 1:
            axes.set_xlabel("proportion of the client's samples", fontsize=8.5)
        axes.set_title(method_label(method), fontsize=9, loc="left", pad=3)
        style_panel(axes, size=8)


def _binned_means(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], bins: int = 6) -> np.ndarray[Any, Any]:
    """[2, n] mean of x and y: of the classes that a client has none of, and of bins of equally many others."""
    order = np.argsort(x, kind="stable")
    none = int((x == 0).sum())
    pieces = [order[:none], *np.array_split(order[none:], bins)]
    return np.array([[v[piece].mean() for piece in pieces if len(piece)] for v in (x, y)])

"""The figure of the loss benchmark."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from .results import Results, comparable

BASE = "eager_minimal"
TIMES = "\N{MULTIPLICATION SIGN}"
# Okabe and Ito's palette, and a marker of its own for each, so that the figure survives grey printing.
STYLES = {
    "eager": ("reference, eager", "#999999", "o"),
    "compiled": ("reference, torch.compile", "#E69F00", "s"),
    "fused_autograd": ("asd_objective().backward()", "#56B4E9", "^"),
    "loss_and_grad": ("asd_loss_and_grad", "#0072B2", "D"),
    "loss_and_grad_cached": ("asd_loss_and_grad, cached teacher", "#D55E00", "P"),
}


def draw(results: Results, path: Path) -> None:
    """Speed-up over minimal eager code by shape, one panel for each number of threads, as path.png and path.svg."""
    shapes = list(dict.fromkeys(shape for shape, *_ in results))
    threads = list(dict.fromkeys(number for _, number, _ in results))
    with plt.rc_context({"font.size": 13, "svg.hashsalt": "loss", "svg.fonttype": "none"}):
        figure, axes = plt.subplots(
            1,
            len(threads),
            figsize=(11, 2.0 + 0.62 * len(shapes)),
            sharex=True,
            sharey=True,
            squeeze=False,
            layout="constrained",
        )
        for number, panel in zip(threads, axes[0], strict=True):
            _panel(panel, results, shapes, number)
        first = axes[0][0]
        first.set_yticks(range(len(shapes)), [shape.replace("x", f" {TIMES} ") for shape in shapes])
        first.set_ylim(len(shapes) - 0.5, -0.5)
        first.set_ylabel(f"B {TIMES} C, or K {TIMES} B {TIMES} C")
        figure.supxlabel(
            "speed-up of loss and gradient over minimal eager PyTorch (lines: 20th to 80th percentile)", fontsize=13
        )
        handles, labels = first.get_legend_handles_labels()
        legend = figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
        legend.get_lines()[-1].set_markersize(14)  # the copy's bar is as tall as a row
        figure.savefig(path.with_suffix(".png"), dpi=160)
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
        plt.close(figure)


def _panel(panel: Axes, results: Results, shapes: list[str], threads: int) -> None:
    for place, (name, (label, colour, marker)) in enumerate(STYLES.items()):
        offset = 0.15 * (place - (len(STYLES) - 1) / 2)
        points = [(y + offset, *_speed_up(results, shape, threads, name)) for y, shape in enumerate(shapes)]
        ys, middle, low, high = zip(*points, strict=True)
        panel.hlines(ys, low, high, color=colour, linewidth=2)
        panel.plot(middle, ys, marker, color=colour, markersize=8, markeredgecolor="white", label=label)
    copies = [_speed_up(results, shape, threads, "copy")[0] for shape in shapes]
    panel.plot(
        copies,
        range(len(shapes)),
        "|",
        color="black",
        markersize=30,
        markeredgewidth=2.5,
        zorder=1.5,
        label="plain copy of 3 arrays",
    )
    for y, shape in enumerate(shapes):
        if y % 2:
            panel.axhspan(y - 0.5, y + 0.5, color="#f4f4f4", zorder=0)
        if not comparable(results.get((shape, threads, BASE))):
            panel.text(1.3, y, "machine was busy", color="#777777", va="center")
    panel.axvline(1, color="black", linewidth=1, linestyle=":")
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(LogLocator(10))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}{TIMES}"))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.grid(axis="x", color="#dddddd")
    panel.set_axisbelow(True)
    panel.tick_params(axis="y", length=0)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.set_title(f"{threads} thread" + ("s" if threads > 1 else ""))


def _speed_up(results: Results, shape: str, threads: int, name: str) -> tuple[float, float, float]:
    """At the median, the 80th and the 20th percentile of this implementation's time, each over the base's median."""
    row, base = results.get((shape, threads, name)), results.get((shape, threads, BASE))
    if row is None or base is None or not comparable(row) or not comparable(base):
        return (float("nan"),) * 3
    middle, low, high = (float(base["median"]) / float(row[key]) for key in ("median", "p80", "p20"))
    return middle, low, high

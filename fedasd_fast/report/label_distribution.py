"""Who has what: the label distribution of a partition as a picture.

A few clients and classes are drawn as bubbles, whose area is the number of samples.  Many are drawn as a heat map, with
the clients sorted by the class they have most of; an even partition is then a plain surface, a skewed one a diagonal.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from ..common import plotting
from ..common.plotting import GREY, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array: TypeAlias = np.ndarray[Any, Any]

BUBBLES = (30, 20)  # at most so many clients and classes
COLUMNS = 1000  # of a heat map, about its width in pixels
BLUE, INK = "#08519c", "#222222"


def draw(counts: ArrayLike, title: str) -> Figure:
    """`counts` [clients, classes]: samples of each class that each client has."""
    table = np.asarray(counts)
    if table.ndim != 2 or table.size == 0 or table.min() < 0:
        raise ValueError(f"counts have shape {table.shape}; expected [clients, classes], 0 or more samples in each")
    figure = new_figure(10, 5.2)
    axes = figure.add_axes((0.07, 0.125, 0.91, 0.735))
    if table.shape[0] <= BUBBLES[0] and table.shape[1] <= BUBBLES[1]:
        _bubbles(axes, table)
    else:
        _heat_map(figure, axes, table)
    axes.set_ylabel("class", color=INK)
    axes.tick_params(color=GREY, labelcolor=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    figure.text(0.07, 0.945, title, fontsize=13, color=INK, fontweight="bold")
    figure.text(0.07, 0.895, caption(table), fontsize=9.5, color=GREY)
    return figure


def save(counts: ArrayLike, title: str, path: str | Path) -> Path:
    """The picture as a file; its ending (.png, .svg, .pdf) says which kind."""
    return plotting.save(draw(counts, title), path)


def caption(counts: ArrayLike) -> str:
    """The skew in a sentence."""
    table = np.asarray(counts)
    sizes = table.sum(axis=1)
    held = int(np.median((table > 0).sum(axis=1)))
    largest = np.median(table.max(axis=1) / np.maximum(sizes, 1))
    low, high = int(sizes.min()), int(sizes.max())
    each = f"{low:,} samples each" if low == high else f"{low:,} to {high:,} samples"
    return (
        f"{len(table):,} client{'s' * (len(table) != 1)} with {each}. The median client has {held} of "
        f"{table.shape[1]} classes; the most frequent one makes up {largest:.0%} of its samples."
    )


def _bubbles(axes: Axes, table: Array) -> None:
    clients, classes = table.shape
    client, label = np.nonzero(table)
    count = table[client, label]
    cell = min(0.9 * 10 * 0.91 / clients, 0.9 * 5.2 * 0.735 / classes) * 72  # points, so that the largest just fits
    axes.scatter(client, label, s=(0.92 * cell) ** 2 * count / table.max(), color=BLUE, alpha=0.85, linewidths=0)
    axes.set(
        xlim=(-0.6, clients - 0.4), ylim=(classes - 0.4, -0.6), xlabel=f"client (largest dot: {table.max():,} samples)"
    )
    axes.set_xticks(range(clients))
    axes.set_yticks(range(classes))
    axes.grid(color="#eeeeee", linewidth=0.8)
    axes.set_axisbelow(True)


def _heat_map(figure: Figure, axes: Axes, table: Array) -> None:
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, PowerNorm

    clients = len(table)
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    order = np.lexsort((-shares.max(axis=1), table.argmax(axis=1)))
    shown = ""
    if clients > COLUMNS:
        order = order[np.linspace(0, clients - 1, COLUMNS).astype(int)]
        shown = f"; {COLUMNS:,} of {clients:,} shown"
    norm = PowerNorm(0.5, vmin=1, vmax=max(2, int(table.max())))  # the square root keeps small counts apart
    blues = ListedColormap(colormaps["Blues"](np.linspace(0.15, 1, 256)))  # no sample is white, one is not
    cells = np.ma.masked_equal(table[order].T, 0)
    image = axes.imshow(cells, aspect="auto", cmap=blues, norm=norm, interpolation="nearest")
    axes.set_xlabel(f"clients, sorted by their most frequent class{shown}", color=INK)
    axes.set_xticks([])
    if table.shape[1] <= BUBBLES[1]:
        axes.set_yticks(range(table.shape[1]))
    left, bottom, width, height = axes.get_position().bounds
    axes.set_position((left, bottom, width - 0.075, height))
    bar = figure.colorbar(image, cax=figure.add_axes((left + width - 0.06, bottom, 0.013, height)))
    bar.set_label("samples (white: none)", color=INK)
    bar.outline.set_visible(False)
    bar.ax.tick_params(color=GREY, labelcolor=INK)

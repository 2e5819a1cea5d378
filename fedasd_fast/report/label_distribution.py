"""Plot of the label distribution: how a partition spreads the classes over the clients.

Few clients and classes are drawn as bubbles whose area is the number of samples.  Many are drawn as a heat map with the
clients sorted by their most frequent class: an even partition gives a plain surface, a skewed one a diagonal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from ..common.formatting import plural
from ..common.plotting import GREY, new_figure
from ..common.schema import ConfigError
from ..config import Config
from ..data import federate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array: TypeAlias = np.ndarray[Any, Any]

MAX_BUBBLES = (30, 20)  # clients and classes
HEAT_MAP_COLUMNS = 1000  # about its width in pixels
BLUE, TEXT_COLOUR = "#08519c", "#222222"


def label_counts(config: Config, max_clients: int) -> Array:
    """[clients, classes]: samples of each class that each client has; of more clients, evenly spaced ones."""
    if "data" in config.inputs:
        raise ConfigError("the run's data were the caller's own, which the settings do not name")
    data = federate(config)
    shown = np.linspace(0, data.num_clients - 1, min(data.num_clients, max_clients)).astype(int)
    return np.stack([data.label_counts(int(k)).numpy() for k in shown])


def label_distribution_figure(counts: ArrayLike, title: str) -> Figure:
    """`counts` [clients, classes]: samples of each class that each client has."""
    table = np.asarray(counts)
    if table.ndim != 2 or table.size == 0 or table.min() < 0:
        raise ValueError(f"counts have shape {table.shape}; expected [clients, classes], 0 or more samples in each")
    figure = new_figure(10, 5.2)
    axes = figure.add_axes((0.07, 0.125, 0.91, 0.735))
    if table.shape[0] <= MAX_BUBBLES[0] and table.shape[1] <= MAX_BUBBLES[1]:
        _draw_bubbles(axes, table)
    else:
        _draw_heat_map(figure, axes, table)
    axes.set_ylabel("class", color=TEXT_COLOUR)
    axes.tick_params(color=GREY, labelcolor=TEXT_COLOUR)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    figure.text(0.07, 0.945, title, fontsize=13, color=TEXT_COLOUR, fontweight="bold")
    figure.text(0.07, 0.895, describe_skew(table), fontsize=9.5, color=GREY)
    return figure


def describe_skew(counts: ArrayLike) -> str:
    """The label skew in two sentences."""
    table = np.asarray(counts)
    sizes = table.sum(axis=1)
    held = int(np.median((table > 0).sum(axis=1)))
    largest = np.median(table.max(axis=1) / np.maximum(sizes, 1))
    low, high = int(sizes.min()), int(sizes.max())
    each = f"{low:,} samples each" if low == high else f"{low:,} to {high:,} samples"
    return (
        f"{plural(len(table), 'client')} with {each}. The median client has {held} of {table.shape[1]} classes; its "
        f"most frequent one makes up {largest:.0%} of its samples."
    )


def _draw_bubbles(axes: Axes, table: Array) -> None:
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


def _draw_heat_map(figure: Figure, axes: Axes, table: Array) -> None:
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, PowerNorm

    clients = len(table)
    proportions = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    order = np.lexsort((-proportions.max(axis=1), table.argmax(axis=1)))
    shown = ""
    if clients > HEAT_MAP_COLUMNS:
        order = order[np.linspace(0, clients - 1, HEAT_MAP_COLUMNS).astype(int)]
        shown = f"; {HEAT_MAP_COLUMNS:,} of {clients:,} shown"
    norm = PowerNorm(0.5, vmin=1, vmax=max(2, int(table.max())))  # the square root keeps small counts apart
    blues = ListedColormap(colormaps["Blues"](np.linspace(0.15, 1, 256)))  # blank is for no sample only
    cells = np.ma.masked_equal(table[order].T, 0)
    image = axes.imshow(cells, aspect="auto", cmap=blues, norm=norm, interpolation="nearest")
    axes.set_xlabel(f"clients, sorted by their most frequent class{shown}", color=TEXT_COLOUR)
    axes.set_xticks([])
    if table.shape[1] <= MAX_BUBBLES[1]:
        axes.set_yticks(range(table.shape[1]))
    left, bottom, width, height = axes.get_position().bounds
    axes.set_position((left, bottom, width - 0.075, height))
    bar = figure.colorbar(image, cax=figure.add_axes((left + width - 0.06, bottom, 0.013, height)))
    bar.set_label("samples (blank: none)", color=TEXT_COLOUR)
    bar.outline.set_visible(False)
    bar.ax.tick_params(color=GREY, labelcolor=TEXT_COLOUR)

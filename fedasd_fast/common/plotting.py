"""Matplotlib figures without pyplot: no global state, no display.  Colours and style of all plots."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from .files import write_atomically
from .schema import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which can be told apart with any kind of colour vision; their yellow is too pale for lines.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
GREY = "#666666"
GRID_COLOUR = "#e4e4e4"


def palette_colour(number: int) -> str:
    return PALETTE[number % len(PALETTE)]


def new_figure(width: float = 8.0, height: float = 4.5) -> Figure:
    """Of this size in inches."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ModuleNotFoundError(
            "plots need matplotlib, which is not installed: pip install 'fedasd-fast[simulation]'"
        ) from None
    figure = Figure(figsize=(width, height), dpi=150, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def style_axes(axes: Axes) -> None:
    """Horizontal grid lines behind the data; no frame at the top and the right."""
    axes.grid(axis="y", color=GRID_COLOUR, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def save_figure(figure: Figure, path: str | Path) -> Path:
    """The suffix of the file (.png, .svg, .pdf) determines the format."""
    path = Path(path)
    known = figure.canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        kind = path.suffix or "a file without a suffix"
        raise ConfigError(f"{path}: plots cannot be saved as {kind}; use .png, .svg or .pdf")
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix[1:] or "png")
    write_atomically(path, buffer.getbuffer())
    return path

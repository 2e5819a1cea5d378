"""Plots of the report page: metrics over rounds, and time per round.

They are narrow, so that their text can be read on a phone, with the legend below.  Lines differ in colour and marker;
where several methods are there with and without ASD, each method has one colour, and its line without ASD is dashed.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..common.plotting import GREY, PALETTE, new_figure, palette_colour, style_axes
from ..simulation.storage.recorded_run import Curve, RecordedRun
from .seed_curves import mean_and_range, method_colours, run_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_LINES = 8  # more cannot be told apart
FIGURE_WIDTH, AXES_HEIGHT, LEGEND_ROW_HEIGHT = 5.0, 2.5, 0.22  # inches
_LEGEND_CHARACTERS = 48  # per line of the legend
_MARKERS = "osD^vPX*"


class LineStyle(NamedTuple):
    colour: str
    marker: str
    line: str
    filled: bool


def line_styles(labels: Sequence[str]) -> dict[str, LineStyle]:
    result = {}
    for label, (number, without_asd) in method_colours(labels).items():
        marker = _MARKERS[number % len(_MARKERS)]
        result[label] = LineStyle(palette_colour(number), marker, "--" if without_asd else "-", not without_asd)
    return result


def rounds_figure(
    runs: Sequence[RecordedRun],
    curve: Callable[[RecordedRun], Curve],
    *,
    title: str,
    ylabel: str,
    paper: Mapping[str, float] | None = None,
    digits: int = 2,
    all_labels: Sequence[str] = (),
) -> Figure:
    """A line per label, the mean over seeds, with a band from the lowest seed to the highest.

    `paper` has the paper's number for some labels: a dotted line.  If these runs are only a part, `all_labels` gives
    every label the same style in all parts.
    """
    from matplotlib.ticker import MaxNLocator

    labels, paper = run_labels(runs), paper or {}
    figure, axes = _new_axes(legend_rows(labels, bool(paper)), title)
    styles, handles, names = line_styles(all_labels or labels), [], []
    for number, label in enumerate(labels):
        seeds = [found for run in runs if run.label == label and (found := curve(run))]
        if label in paper:
            axes.axhline(paper[label], color=styles[label].colour, linestyle=":", linewidth=1.3)
        if seeds:
            line, last = _draw_seeds(axes, seeds, styles[label], number / len(labels))
            handles.append(line)
            names.append(_legend_text(label, f"{last:.{digits}f}", paper.get(label)))
    axes.set_xlim(0, max([1, *(run.config.rounds for run in runs)]))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))  # there is no half a round
    axes.set_xlabel("round")
    axes.set_ylabel(ylabel)
    if handles:
        _add_legend(figure, handles, names)
    else:
        axes.text(0.5, 0.5, "no round with this number yet", transform=axes.transAxes, ha="center", color=GREY)
    return figure


def time_figure(runs: Sequence[RecordedRun]) -> Figure:
    """Mean seconds per round for each label: training and evaluation."""
    labels = run_labels(runs)
    figure, axes = _new_axes(1, "Seconds per round", height=0.45 + 0.3 * len(labels))
    seconds = {label: seconds_per_round([run for run in runs if run.label == label]) for label in labels}
    training, evaluation = ([seconds[label][i] for label in labels] for i in (0, 1))
    places = range(len(labels))
    bars = [
        axes.barh(places, training, color=PALETTE[0], height=0.62),
        axes.barh(places, evaluation, left=training, color=PALETTE[5], height=0.62, hatch="////", edgecolor="#000000"),
    ]
    for place, label in enumerate(labels):
        text = f" {sum(seconds[label]):.3g} s"
        axes.text(sum(seconds[label]), place, text, va="center", fontsize=9)
    axes.set_yticks(places, [_shortened(label) for label in labels])
    for tick in axes.get_yticklabels():
        tick.set_parse_math(False)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.18 * max([1e-9, *map(sum, seconds.values())]))
    axes.set_xlabel("seconds")
    axes.grid(visible=False, axis="both")
    axes.locator_params(axis="x", nbins=4)
    left, bottom, width, height = axes.get_position().bounds
    shift = 0.04 + 0.0185 * max(len(_shortened(label)) for label in labels) - left  # room for the names
    axes.set_position((left + shift, bottom, width - shift, height))
    _add_legend(figure, bars, ["training", "evaluation"])
    return figure


def seconds_per_round(runs: Sequence[RecordedRun]) -> tuple[float, float]:
    """Training and evaluation."""
    rounds = max(1, sum(len(run.metrics) for run in runs))
    training, evaluation = (sum(run.total(key) for run in runs) / rounds for key in ("seconds", "seconds_eval"))
    return training, evaluation


def _draw_seeds(axes: Axes, seeds: Sequence[Curve], style: LineStyle, offset: float) -> tuple[Any, float]:
    """Returns the line for the legend, and its last value."""
    mean, low, high = mean_and_range(seeds)
    if len({tuple(seed) for seed in seeds}) > 1:  # some seeds have more rounds than others
        for seed in seeds:
            axes.plot(list(seed), list(seed.values()), color=style.colour, linewidth=0.8, alpha=0.6)
    if len(seeds) > 1 and mean:
        axes.fill_between(
            list(mean), list(low.values()), list(high.values()), color=style.colour, alpha=0.2, linewidth=0
        )
    shown = mean or seeds[0]
    every = max(1, len(shown) // 8)
    (line,) = axes.plot(
        list(shown),
        list(shown.values()),
        color=style.colour,
        linestyle=style.line,
        linewidth=1.8,
        marker=style.marker,
        markersize=5,
        markevery=(int(offset * every), every),  # lines close together have their markers at different rounds
        markerfacecolor=style.colour if style.filled else "#ffffff",
        clip_on=False,
    )
    return line, list(shown.values())[-1]


def legend_rows(labels: Sequence[str], paper: bool) -> int:
    names = [_legend_text(label, "00.00", 0.0 if paper else None) for label in labels]
    lines = sum(name.count("\n") + 1 for name in names)
    return -(-lines // _legend_columns(names))


def _legend_text(label: str, value: str, paper: float | None) -> str:
    """A label with many settings takes several lines."""
    return textwrap.fill(f"{label}  {value}" + ("" if paper is None else f" (paper {paper:.2f})"), _LEGEND_CHARACTERS)


def _legend_columns(names: Sequence[str]) -> int:
    return 2 if max(map(len, names), default=0) <= 24 else 1


def _shortened(label: str, length: int = 24) -> str:
    return label if len(label) <= length else label[: length - 1] + "…"


def _new_axes(legend_rows: int, title: str, height: float = AXES_HEIGHT) -> tuple[Figure, Axes]:
    below, above = 0.6 + LEGEND_ROW_HEIGHT * legend_rows + 0.1, 0.42
    total = below + height + above
    figure = new_figure(FIGURE_WIDTH, total)
    axes = figure.add_axes((0.16, below / total, 0.79, height / total))  # room for ticks like 1.250
    style_axes(axes)
    figure.text(0.015, 1 - 0.24 / total, title, fontsize=11, weight="bold", parse_math=False)
    return figure, axes


def _add_legend(figure: Figure, handles: Sequence[Any], names: Sequence[str]) -> None:
    legend = figure.legend(
        handles,
        names,
        loc="lower left",
        bbox_to_anchor=(0.01, 0.0),
        ncols=_legend_columns(names),
        fontsize=9.5,
        frameon=False,
        handlelength=2.6,
        labelspacing=0.35,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)

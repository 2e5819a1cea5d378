"""Figures of the page: narrow, so that their letters can be read on a phone, with the legend below.

Lines are told apart by colour and by marker; of several methods, each has a colour, and a broken line without ASD.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..common.plotting import GREY, PALETTE, colour, new_figure
from ..simulation.storage.recorded_run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LINES = 8  # more cannot be told apart
WIDTH, PLOT, ROW = 5.0, 2.5, 0.22  # inches: of the figure, height of the axes, of a line of the legend
_LETTERS = 48  # of a line of the legend
_MARKERS = "osD^vPX*"

Curve: TypeAlias = dict[int, float]  # by round


class Style(NamedTuple):
    colour: str
    marker: str
    line: str
    filled: bool


def styles(labels: Sequence[str]) -> dict[str, Style]:
    """A colour and a marker for each label, or for each method if it is there with and without ASD among others."""
    bases = list(dict.fromkeys(label.replace("+ASD", "") for label in labels))
    paired = 1 < len(bases) < len(labels)
    result = {}
    for place, label in enumerate(labels):
        with_asd = "+ASD" in label or not paired
        place = bases.index(label.replace("+ASD", "")) if paired else place
        marker = _MARKERS[place % len(_MARKERS)]
        result[label] = Style(colour(place), marker, "-" if with_asd else "--", with_asd)
    return result


def over_rounds(
    runs: Sequence[Run],
    curve: Callable[[Run], Curve],
    *,
    title: str,
    ylabel: str,
    paper: Mapping[str, float] | None = None,
    digits: int = 1,
    among: Sequence[str] = (),
) -> Figure:
    """A line for each label, the mean over seeds; the band reaches from the lowest seed to the highest.

    `paper` gives the paper's number of a label: a dotted line.  `among`: all labels, where these runs are a part of
    them; a label then looks the same in all parts.
    """
    labels, paper = list(dict.fromkeys(run.label for run in runs)), paper or {}
    figure, axes = _axes(legend_rows(labels, bool(paper)), title)
    look, handles, names = styles(among or labels), [], []
    for place, label in enumerate(labels):
        seeds = [found for run in runs if run.label == label and (found := curve(run))]
        if label in paper:
            axes.axhline(paper[label], color=look[label].colour, linestyle=":", linewidth=1.3)
        if seeds:
            line, last = _draw(axes, seeds, look[label], place / len(labels))
            handles.append(line)
            names.append(_name(label, f"{last:.{digits}f}", paper.get(label)))
    axes.set_xlim(0, max([1, *(run.config.rounds for run in runs)]))
    axes.set_xlabel("round")
    axes.set_ylabel(ylabel)
    if handles:
        _legend(figure, handles, names)
    else:
        axes.text(0.5, 0.5, "no round with this number yet", transform=axes.transAxes, ha="center", color=GREY)
    return figure


def time_bars(runs: Sequence[Run]) -> Figure:
    """Seconds of a round, on average, for each label: training and evaluation."""
    labels = list(dict.fromkeys(run.label for run in runs))
    figure, axes = _axes(1, "Seconds a round", height=0.45 + 0.3 * len(labels))
    shares = {label: seconds_a_round([run for run in runs if run.label == label]) for label in labels}
    training, evaluation = ([shares[label][i] for label in labels] for i in (0, 1))
    places = range(len(labels))
    bars = [
        axes.barh(places, training, color=PALETTE[0], height=0.62),
        axes.barh(places, evaluation, left=training, color=PALETTE[5], height=0.62, hatch="////", edgecolor="#000000"),
    ]
    for place, label in enumerate(labels):
        text = f" {sum(shares[label]):.3g} s"
        axes.text(sum(shares[label]), place, text, va="center", fontsize=9)
    axes.set_yticks(places, [_short(label) for label in labels])
    for tick in axes.get_yticklabels():
        tick.set_parse_math(False)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.18 * max([1e-9, *map(sum, shares.values())]))
    axes.set_xlabel("seconds")
    axes.grid(visible=False, axis="both")
    axes.locator_params(axis="x", nbins=4)
    left, bottom, width, height = axes.get_position().bounds
    shift = 0.04 + 0.0185 * max(len(_short(label)) for label in labels) - left  # room for the names
    axes.set_position((left + shift, bottom, width - shift, height))
    _legend(figure, bars, ["training", "evaluation"])
    return figure


def seconds_a_round(runs: Sequence[Run]) -> tuple[float, float]:
    """Training and evaluation."""
    rounds = max(1, sum(len(run.metrics) for run in runs))
    training, evaluation = (sum(run.total(key) for run in runs) / rounds for key in ("seconds", "seconds_eval"))
    return training, evaluation


def accuracy(model: str) -> Callable[[Run], Curve]:
    return lambda run: dict(zip(*run.curve(model), strict=True))


def metric(key: str) -> Callable[[Run], Curve]:
    """A number that every round has, as a moving mean: single rounds depend on who took part."""
    return lambda run: smoothed(_finite((row["round"], row.get(key)) for row in run.metrics), _window(run))


def updates_per_second(run: Run) -> Curve:
    """Ratios of moving means: a round that took long counts as long as it took."""
    rows = [row for row in run.metrics if row.get("seconds") and row.get("client_updates") is not None]
    updates, seconds = (
        smoothed(_finite((row["round"], row[key]) for row in rows), _window(run))
        for key in ("client_updates", "seconds")
    )
    return {round: updates[round] / seconds[round] for round in updates if seconds.get(round)}


def smoothed(curve: Curve, window: int) -> Curve:
    """Mean over `window` rounds around each, over those that there are at the ends."""
    rounds, values = list(curve), list(curve.values())
    result = {}
    for i, round in enumerate(rounds):
        result[round] = _mean(values[max(0, i - window // 2) : i + window // 2 + 1])
    return result


def _window(run: Run) -> int:
    return max(1, len(run.metrics) // 15)


def _finite(pairs: Any) -> Curve:
    return {int(round): float(value) for round, value in pairs if value is not None and math.isfinite(value)}


def mean_and_range(seeds: Sequence[Curve]) -> tuple[Curve, Curve, Curve]:
    """Over the rounds that all seeds have: mean, lowest, highest."""
    common = sorted(set.intersection(*map(set, seeds)))
    values = {round: [seed[round] for seed in seeds] for round in common}
    return tuple({r: f(v) for r, v in values.items()} for f in (_mean, min, max))  # type: ignore[return-value]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _draw(axes: Axes, seeds: Sequence[Curve], style: Style, offset: float) -> tuple[Any, float]:
    """The line for the legend, and the last value."""
    mean, low, high = mean_and_range(seeds)
    if len({tuple(seed) for seed in seeds}) > 1:  # some got further than others
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
        markevery=(int(offset * every), every),  # lines close together have theirs at different rounds
        markerfacecolor=style.colour if style.filled else "#ffffff",
        clip_on=False,
    )
    return line, list(shown.values())[-1]


def legend_rows(labels: Sequence[str], paper: bool) -> int:
    names = [_name(label, "00.0", 0.0 if paper else None) for label in labels]
    lines = sum(name.count("\n") + 1 for name in names)
    return -(-lines // _columns(names))


def _name(label: str, value: str, paper: float | None) -> str:
    """In the legend; a name of many settings takes several lines."""
    return textwrap.fill(f"{label}  {value}" + _paper_text(paper), _LETTERS)


def _columns(names: Sequence[str]) -> int:
    return 2 if max(map(len, names), default=0) <= 24 else 1


def _paper_text(number: float | None) -> str:
    return "" if number is None else f" (paper {number:.1f})"


def _short(label: str, most: int = 24) -> str:
    return label if len(label) <= most else label[: most - 1] + "…"


def _axes(legend_rows: int, title: str, height: float = PLOT) -> tuple[Figure, Axes]:
    below, above = 0.6 + ROW * legend_rows + 0.1, 0.42
    total = below + height + above
    figure = new_figure(WIDTH, total)
    axes = figure.add_axes((0.13, below / total, 0.82, height / total))
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.text(0.015, 1 - 0.24 / total, title, fontsize=11, weight="bold", parse_math=False)
    return figure, axes


def _legend(figure: Figure, handles: Sequence[Any], names: Sequence[str]) -> None:
    legend = figure.legend(
        handles,
        names,
        loc="lower left",
        bbox_to_anchor=(0.01, 0.0),
        ncols=_columns(names),
        fontsize=9.5,
        frameon=False,
        handlelength=2.6,
        labelspacing=0.35,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)

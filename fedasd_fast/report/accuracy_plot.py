"""Plot of accuracy against rounds as a file of its own, with the labels at the ends of the lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..common.formatting import MODEL_DESCRIPTIONS, format_accuracy, plural
from ..common.plotting import GREY, new_figure, palette_colour, style_axes
from ..config import Config
from ..simulation.storage.recorded_run import Curve, RecordedRun
from .seed_curves import mean_and_range, method_colours, run_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def accuracy_figure(
    runs: Sequence[RecordedRun],
    *,
    model: str = "cloud",
    paper: Mapping[str, float] | None = None,
    paper_rounds: int | None = None,
    title: str | None = None,
    subtitle: str | None = None,
) -> Figure:
    """Test accuracy of one averaged model against rounds; runs with the same label are the seeds of one curve.

    `paper` has the paper's accuracy for some labels, after `paper_rounds` rounds; it is drawn as a dashed line.
    """
    labels = run_labels(runs)
    width = 7.2 + 0.075 * max(10, *map(len, labels)) if labels else 8.0  # inches: the labels are beside the lines
    figure = new_figure(width)
    axes = figure.add_axes((0.72 / width, 0.17, 5.6 / width, 0.67))
    colours = _line_colours(labels)
    ends: list[LineEnd] = []
    for label in labels:
        seeds = [curve for run in runs if run.label == label and (curve := run.accuracies(model))]
        if seeds:
            value = _draw_seeds(axes, seeds, colours[label].line)
            ends.append(LineEnd(value, f"{label}  {format_accuracy(value)}", colours[label].text))
    paper = {label: number for label, number in (paper or {}).items() if label in labels}
    for label, number in paper.items():
        axes.axhline(number, color=colours[label].line, linestyle=(0, (5, 4)), linewidth=1)
        ends.append(LineEnd(number, f"paper  {format_accuracy(number)}", colours[label].text))
    _set_limits(axes, max((run.config.rounds for run in runs), default=1))
    if ends:
        _label_ends(axes, ends)
    else:
        axes.set_ylim(0, 100)
        axes.text(0.5, 0.5, "no round evaluated yet", transform=axes.transAxes, ha="center", color=GREY)
    caption = [f"Evaluated: {MODEL_DESCRIPTIONS.get(model, model)}"]
    if len(runs) > len(labels):
        caption.append("thin lines: seeds, thick lines: their mean")
    if paper:
        caption.append("dashed: the paper" + (f", after {paper_rounds} rounds" if paper_rounds else ""))
    figure.text(0.72 / width, 0.93, title or "Test accuracy", fontsize=13, weight="bold")
    figure.text(0.72 / width, 0.875, subtitle or "", fontsize=9, color=GREY)
    figure.text(0.72 / width, 0.025, "; ".join(caption) + ".", fontsize=8, color=GREY)
    return figure


def common_settings(configs: Sequence[Config]) -> str:
    """The main settings that all runs have in common, in one line: the subtitle of a plot."""
    parts = zip(*(_main_settings(config) for config in configs), strict=True)
    return ", ".join(same[0] for same in parts if len(set(same)) == 1)


def _main_settings(config: Config) -> list[str]:
    return [
        config.dataset,
        config.model,
        config.partition,
        plural(config.clients, "client"),
        f"{100 * config.participation:g} % per round",
        plural(config.local_epochs, "local epoch"),
        f"lr {config.optimizer.lr:g}",
    ]


class LineColours(NamedTuple):
    line: str
    text: str  # pale text cannot be read


class LineEnd(NamedTuple):
    value: float
    text: str
    colour: str


def _line_colours(labels: Sequence[str]) -> dict[str, LineColours]:
    """A method without ASD has a paler line than the same method with ASD."""
    result = {}
    for label, (number, without_asd) in method_colours(labels).items():
        colour = palette_colour(number)
        result[label] = LineColours(_paler(colour) if without_asd else colour, colour)
    return result


def _paler(colour: str) -> str:
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - 0.5 * (255 - part)):02x}" for part in parts)


def _draw_seeds(axes: Axes, seeds: Sequence[Curve], colour: str) -> float:
    """Seeds as thin lines and their mean as a thick one; returns the last value of the mean."""
    for seed in seeds if len(seeds) > 1 else ():
        axes.plot(list(seed), list(seed.values()), color=colour, linewidth=0.8, alpha=0.45)
    mean, _, _ = mean_and_range(seeds)
    if not mean:  # the seeds were evaluated at different rounds
        return list(seeds[0].values())[-1]
    marker = "o" if len(mean) < 3 else None
    axes.plot(list(mean), list(mean.values()), color=colour, linewidth=2, marker=marker, markersize=5, clip_on=False)
    return list(mean.values())[-1]


def _set_limits(axes: Axes, rounds: int) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(0, max(rounds, 1))
    axes.margins(y=0.06)
    axes.set_xlabel("round")
    axes.set_ylabel("test accuracy (%)")
    style_axes(axes)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def _label_ends(axes: Axes, ends: Sequence[LineEnd], gap: float = 0.055) -> None:
    """Labels beside the ends of the lines, moved apart where they would overlap."""
    low, high = axes.get_ylim()
    ends = sorted(ends, key=lambda end: end.value)
    gap, size = (gap, 9) if gap * len(ends) <= 1 else (1 / len(ends), 6)
    lines = [(end.value - low) / (high - low) for end in ends]
    for line, height, (_, text, ink) in zip(lines, _moved_apart(lines, gap), ends, strict=True):
        axes.plot((1.005, 1.025), (line, height), transform=axes.transAxes, color=ink, linewidth=0.7, clip_on=False)
        axes.text(1.03, height, text, transform=axes.transAxes, va="center", fontsize=size, color=ink)


def _moved_apart(heights: Sequence[float], gap: float) -> list[float]:
    """Sorted heights in [0, 1], at least `gap` apart: first pushed up, then back down from the top."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + gap) if placed else height)
    top = max(1.0, gap * (len(placed) - 1))
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], top)
        top = placed[i] - gap
    return placed

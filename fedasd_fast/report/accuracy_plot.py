"""Figures of accuracy against rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..common.formatting import MODELS
from ..common.plotting import GREY, colour, new_figure
from ..config import Config
from ..simulation.storage.recorded_run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def accuracy_figure(
    runs: Sequence[Run],
    *,
    model: str = "all",
    paper: Mapping[str, float] | None = None,
    paper_rounds: int | None = None,
    title: str | None = None,
    subtitle: str | None = None,
) -> Figure:
    """Test accuracy of one averaged model against rounds; runs with one label are seeds of one curve.

    `paper` gives the paper's number of a label, after `paper_rounds`; it is drawn as a dashed line.
    """
    labels = list(dict.fromkeys(run.label for run in runs))
    width = 7.2 + 0.075 * max(10, *map(len, labels)) if labels else 8.0  # inches: names stand beside the lines
    figure = new_figure(width)
    axes = figure.add_axes((0.72 / width, 0.17, 5.6 / width, 0.67))
    colours = _colours(labels)
    ends: list[tuple[float, str, str]] = []
    for label in labels:
        seeds = [curve for run in runs if run.label == label and (curve := run.curve(model))[0]]
        if seeds:
            value = _draw(axes, seeds, colours[label])
            ends.append((value, f"{label}  {value:.1f}", colours[label].text))
    paper = {label: number for label, number in (paper or {}).items() if label in labels}
    for label, number in paper.items():
        axes.axhline(number, color=colours[label].line, linestyle=(0, (5, 4)), linewidth=1)
        ends.append((number, f"paper  {number:.1f}", colours[label].text))
    _frame(axes, max((run.config.rounds for run in runs), default=1))
    if ends:
        _label_ends(axes, ends)
    else:
        axes.set_ylim(0, 100)
        axes.text(0.5, 0.5, "no evaluated round yet", transform=axes.transAxes, ha="center", color=GREY)
    caption = [f"Evaluated: {MODELS.get(model, model)}"]
    if len(runs) > len(labels):
        caption.append("thin lines: seeds, thick: their mean")
    if paper:
        caption.append("dashed: the paper" + (f", after {paper_rounds} rounds" if paper_rounds else ""))
    figure.text(0.72 / width, 0.93, title or "Test accuracy", fontsize=13, weight="bold")
    figure.text(0.72 / width, 0.875, subtitle or "", fontsize=9, color=GREY)
    figure.text(0.72 / width, 0.025, "; ".join(caption) + ".", fontsize=8, color=GREY)
    return figure


def setting_text(configs: Sequence[Config]) -> str:
    """One line that says what was run, as far as all runs have it in common: the subtitle of a figure."""
    parts = zip(*(_parts(config) for config in configs), strict=True)
    return ", ".join(same[0] for same in parts if len(set(same)) == 1)


def _parts(config: Config) -> list[str]:
    epochs = config.local_epochs
    return [
        config.dataset,
        config.model,
        config.partition,
        f"{config.clients} clients",
        f"{100 * config.participation:g} % a round",
        f"{epochs} local epoch{'s' * (epochs != 1)}",
        f"lr {config.optimizer.lr:g}",
    ]


class Colours(NamedTuple):
    line: str
    text: str  # pale letters cannot be read


def _colours(labels: Sequence[str]) -> dict[str, Colours]:
    """Several methods: one colour each, paler without ASD.  Else a colour for each label."""
    bases = list(dict.fromkeys(label.removesuffix("+ASD") for label in labels))
    paired = 1 < len(bases) < len(labels)
    result = {}
    for label in labels:
        place = bases.index(label.removesuffix("+ASD")) if paired else labels.index(label)
        line = colour(place)
        result[label] = Colours(_paler(line) if paired and not label.endswith("+ASD") else line, line)
    return result


def _paler(line: str) -> str:
    parts = (int(line[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - 0.5 * (255 - part)):02x}" for part in parts)


def _draw(axes: Axes, seeds: Sequence[tuple[list[int], list[float]]], colours: Colours) -> float:
    """Seeds as thin lines and their mean as a thick one; the last value of that."""
    for rounds, values in seeds if len(seeds) > 1 else ():
        axes.plot(rounds, values, color=colours.line, linewidth=0.8, alpha=0.45)
    curves = [dict(zip(*seed, strict=True)) for seed in seeds]
    common = sorted(set.intersection(*(set(curve) for curve in curves)))
    if not common:  # seeds evaluated at different rounds have no mean
        return seeds[0][1][-1]
    mean = [sum(curve[round] for curve in curves) / len(curves) for round in common]
    marker = "o" if len(common) < 3 else None
    axes.plot(common, mean, color=colours.line, linewidth=2, marker=marker, markersize=5, clip_on=False)
    return mean[-1]


def _frame(axes: Axes, rounds: int) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(0, max(rounds, 1))
    axes.margins(y=0.06)
    axes.set_xlabel("round")
    axes.set_ylabel("test accuracy (%)")
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def _label_ends(axes: Axes, ends: Sequence[tuple[float, str, str]], gap: float = 0.055) -> None:
    """Names beside the ends of the lines, moved apart where they would overlap."""
    low, high = axes.get_ylim()
    ends = sorted(ends, key=lambda end: end[0])
    gap, size = (gap, 9) if gap * len(ends) <= 1 else (1 / len(ends), 6)
    lines = [(value - low) / (high - low) for value, _, _ in ends]
    for line, height, (_, text, ink) in zip(lines, _apart(lines, gap), ends, strict=True):
        axes.plot((1.005, 1.025), (line, height), transform=axes.transAxes, color=ink, linewidth=0.7, clip_on=False)
        axes.text(1.03, height, text, transform=axes.transAxes, va="center", fontsize=size, color=ink)


def _apart(heights: Sequence[float], gap: float) -> list[float]:
    """Sorted heights in [0, 1], at least `gap` from one another: first pushed up, then back down from the top."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + gap) if placed else height)
    top = max(1.0, gap * (len(placed) - 1))
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], top)
        top = placed[i] - gap
    return placed

"""Curves over rounds: mean and range over seeds, moving averages, and one colour per method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..simulation.storage.recorded_run import Curve, RecordedRun


def run_labels(runs: Sequence[RecordedRun]) -> list[str]:
    """Each label once, in the order of the runs."""
    return list(dict.fromkeys(run.label for run in runs))


def mean_and_range(seeds: Sequence[Curve]) -> tuple[Curve, Curve, Curve]:
    """Mean, lowest and highest value over the rounds that all seeds have."""
    common = sorted(set.intersection(*map(set, seeds)))
    values = {round: [seed[round] for seed in seeds] for round in common}
    mean, low, high = ({r: f(v) for r, v in values.items()} for f in (_mean, min, max))
    return mean, low, high


def moving_average(curve: Curve, window: int) -> Curve:
    """Mean over `window` rounds centred at each round; fewer at the ends."""
    rounds, values = list(curve), list(curve.values())
    half = window // 2
    return {round: _mean(values[max(0, i - half) : i + half + 1]) for i, round in enumerate(rounds)}


def smoothed_metric(run: RecordedRun, key: str) -> Curve:
    """A metric that every round has, as a moving average: single rounds depend on which clients took part."""
    return moving_average(run.curve(key), _window(run))


def updates_per_second(run: RecordedRun) -> Curve:
    """Ratio of two moving averages, so that a round that took long has its full weight."""
    updates, seconds = run.curve("client_updates"), run.curve("seconds")
    both = [round for round in updates if seconds.get(round)]
    clients, times = (moving_average({r: curve[r] for r in both}, _window(run)) for curve in (updates, seconds))
    return {round: clients[round] / times[round] for round in both}


class MethodColour(NamedTuple):
    number: int  # of the colour in the palette
    without_asd: bool  # shares its colour with the same method with ASD


def method_colours(labels: Sequence[str]) -> dict[str, MethodColour]:
    """One colour per label; if several methods are there with and without ASD, one colour per method."""
    bases = list(dict.fromkeys(label.replace("+ASD", "") for label in labels))
    paired = 1 < len(bases) < len(labels)
    return {
        label: MethodColour(bases.index(label.replace("+ASD", "")), "+ASD" not in label)
        if paired
        else MethodColour(number, False)
        for number, label in enumerate(labels)
    }


def _window(run: RecordedRun) -> int:
    return max(1, len(run.metrics) // 15)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)

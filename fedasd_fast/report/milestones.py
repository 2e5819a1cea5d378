"""Milestones of a run: the best evaluation, and the round in which a target accuracy was first reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..common.durations import format_duration
from ..common.formatting import format_accuracy, format_bytes, format_mean
from ..common.html import Html, element, section, table
from ..simulation.storage.recorded_run import RecordedRun
from .run_group import RunGroup

_BYTES = ("bytes_up", "bytes_down")
TARGET_SHARE = 0.9  # of the best final accuracy among the runs


class Best(NamedTuple):
    round: int
    accuracy: float


def best_evaluation(run: RecordedRun, model: str) -> Best | None:
    """The first of the highest, if there are several."""
    curve = run.accuracies(model)
    return Best(*max(curve.items(), key=lambda item: (item[1], -item[0]))) if curve else None


def rounds_to(run: RecordedRun, model: str, target: float) -> int | None:
    """The first evaluated round with at least the target accuracy."""
    return next((round for round, value in run.accuracies(model).items() if value >= target), None)


def seconds_to(run: RecordedRun, round: int | None) -> float | None:
    """Simulated, at the end of a round; None: no time was simulated, or there is no such round."""
    return None if round is None else run.curve("simulated_clock").get(round)


def common_target(experiment: RunGroup) -> float | None:
    """The setting target_accuracy, in percent, if all runs have the same."""
    targets = {run.config.target_accuracy for run in experiment.runs}
    target = targets.pop() if len(targets) == 1 else None
    return None if target is None else 100 * target


def traffic_text(run: RecordedRun, until: int | None) -> str | None:
    """`3 MB up, 3 MB down` of the rounds up to this one."""
    if until is None:
        return None
    if not run.total("bytes_up"):  # an older version did not count them
        return "-"
    up, down = (sum(row.get(key) or 0 for row in run.metrics if row["round"] <= until) for key in _BYTES)
    return f"{format_bytes(up)} up, {format_bytes(down)} down"


def target_accuracy(experiment: RunGroup) -> float | None:
    """As set, else a share of the best one, to two decimals, as it is shown."""
    if (target := common_target(experiment)) is not None:
        return target
    finals = [value for run in experiment.runs if (value := run.accuracy(experiment.model)) is not None]
    return round(TARGET_SHARE * max(finals), 2) if finals else None


def milestones_section(experiment: RunGroup) -> Html:
    target, model = target_accuracy(experiment), experiment.model
    if target is None:
        return Html()
    shown = format_accuracy(target)
    simulated = any(run.curve("simulated_clock") for run in experiment.runs)
    rows = []
    for label in experiment.labels:
        runs = experiment.with_label(label)
        best = [found for run in runs if (found := best_evaluation(run, model))]
        reached = [rounds_to(run, model, target) for run in runs]
        row = [
            label,
            format_mean([found.accuracy for found in best]),
            ", ".join(str(found.round) for found in best) or "-",
            _seed_by_seed([None if number is None else str(number) for number in reached]),
            _seed_by_seed([traffic_text(run, number) for run, number in zip(runs, reached, strict=True)]),
        ]
        if simulated:
            times = [seconds_to(run, number) for run, number in zip(runs, reached, strict=True)]
            row.append(_seed_by_seed([None if time is None else format_duration(time) for time in times]))
        rows.append(row)
    several = len(experiment.runs) > len(experiment.labels)
    columns = ["", f"best acc {model}", "in round", f"rounds to {shown} %", f"bytes to {shown} %"]
    columns += [f"simulated time to {shown} %"] * simulated
    caption = "Best accuracy in %, its round, and the first round at the target" + ", seed by seed" * several
    share = f"{TARGET_SHARE:.0%} of the best final accuracy ({model}) among these runs"
    whence = share if common_target(experiment) is None else f"the setting target_accuracy ({model})"
    remark = f"The target, {shown} %, is {whence}. Only evaluated rounds count (eval_every)."
    return section(3, "Best round, and how soon", table(columns, rows, caption), element("p", remark, class_="muted"))


def _seed_by_seed(values: Sequence[str | None]) -> str:
    return ", ".join(value or "not yet" for value in values)

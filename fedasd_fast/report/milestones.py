"""Milestones of a run: the best evaluation, and the round in which a target accuracy was first reached."""

from __future__ import annotations

from typing import NamedTuple

from ..common.formatting import format_accuracy, format_mean
from ..common.html import Html, element, section, table
from ..simulation.storage.recorded_run import RecordedRun
from .run_group import RunGroup

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


def target_accuracy(experiment: RunGroup) -> float | None:
    """To two decimals, as it is shown."""
    finals = [value for run in experiment.runs if (value := run.accuracy(experiment.model)) is not None]
    return round(TARGET_SHARE * max(finals), 2) if finals else None


def milestones_section(experiment: RunGroup) -> Html:
    target, model = target_accuracy(experiment), experiment.model
    if target is None:
        return Html()
    shown = format_accuracy(target)
    rows = []
    for label in experiment.labels:
        runs = experiment.with_label(label)
        best = [found for run in runs if (found := best_evaluation(run, model))]
        reached = [rounds_to(run, model, target) for run in runs]
        rows.append(
            [
                label,
                format_mean([found.accuracy for found in best]),
                ", ".join(str(found.round) for found in best) or "-",
                ", ".join("not yet" if number is None else str(number) for number in reached),
            ]
        )
    several = len(experiment.runs) > len(experiment.labels)
    columns = ["", f"best acc {model}", "in round", f"rounds to {shown} %"]
    caption = "Best accuracy in %, its round, and the first round at the target" + ", seed by seed" * several
    remark = (
        f"The target, {shown} %, is {TARGET_SHARE:.0%} of the best final accuracy ({model}) among these runs. Only "
        "evaluated rounds count (eval_every)."
    )
    return section(3, "Best round, and how soon", table(columns, rows, caption), element("p", remark, class_="muted"))

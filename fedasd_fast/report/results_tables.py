"""Tables of final accuracies, ours and the paper's: as text, and as a section of the report page."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from ..common.formatting import MODEL_DESCRIPTIONS, format_accuracy, format_mean, format_signed
from ..common.html import Html, element, joined, section, table
from ..common.table import Table
from ..presets import Expected, headline_model
from ..simulation.storage.recorded_run import RecordedRun
from .run_group import RunGroup
from .seed_curves import run_labels


def results_table(runs: Sequence[RecordedRun], paper: Mapping[str, str] | None = None, title: str = "") -> Table:
    """A row for each label: accuracies at the last evaluation, mean and standard deviation over seeds."""
    labels = run_labels(runs)
    models = _evaluated_models(runs)
    columns = ["", "seeds", "rounds", *(f"acc {model}" for model in models), "seconds", "client updates/s"]
    rows = []
    for label in labels:
        seeds = [run for run in runs if run.label == label]
        rows.append(
            [
                label,
                str(len(seeds)),
                _span({run.rounds for run in seeds}),
                *(format_mean([run.accuracy(model) for run in seeds]) for model in models),
                f"{sum(run.seconds for run in seeds):,.1f}",
                f"{statistics.fmean(run.updates_per_second for run in seeds):,.1f}",
            ]
        )
    if paper and any(paper.get(label) for label in labels):
        columns.append("paper")
        for label, row in zip(labels, rows, strict=True):
            row.append(paper.get(label, ""))
    note = "acc: accuracy in % at the last evaluation.\n" + "\n".join(
        f"{model}: {MODEL_DESCRIPTIONS[model]}" for model in models
    )
    return Table(columns, rows, title, note)


def results_section(experiment: RunGroup) -> Html:
    expected, gains = experiment.expected, gains_from_asd(experiment)
    models = _evaluated_models(experiment.runs)
    columns = ["", "seeds", "rounds", *(f"acc {model}" for model in models)]
    columns += ["gain from ASD"] * bool(gains) + ["paper", "ours - paper"] * bool(expected)
    rows = []
    for label in experiment.labels:
        runs = experiment.with_label(label)
        row = [label, ", ".join(str(run.config.seed) for run in runs), rounds_text(runs)]
        row += [format_mean([run.accuracy(model) for run in runs]) for model in models]
        if gains:
            row.append(format_signed(gains.get(label)))
        if expected:
            paper = expected.get(label)
            difference = None if paper is None else difference_from_paper(runs, paper)
            row += [paper_text(paper), format_signed(difference)]
        rows.append(row)
    several = len(experiment.runs) > len(experiment.labels)
    caption = "Test accuracy in % at the last evaluation" + ", mean ± standard deviation over seeds" * several
    remarks = [f"{model}: {MODEL_DESCRIPTIONS[model]}" for model in models]
    if any(len({run.rounds for run in experiment.with_label(label)}) > 1 for label in experiment.labels):
        remarks.append("if some seeds have fewer rounds than others, the last evaluation of each counts")
    if gains:
        remarks.append(
            f"gain from ASD: acc {experiment.model} minus that of the same method without ASD, in points, where both "
            "have the same number of rounds"
        )
    if expected:
        remarks.append("ours - paper: in points, only for finished runs with the paper's settings and rounds")
    about_paper = [
        element("li", f"Paper, {label}: {paper}") for label, paper in expected.items() if paper.differs or paper.suspect
    ]
    return section(
        3,
        "Final accuracy",
        table(columns, rows, caption),
        element("p", "; ".join(remarks), ".", class_="muted") if remarks else "",
        element("ul", joined(about_paper), class_="muted") if about_paper else "",
    )


def rounds_text(runs: Sequence[RecordedRun]) -> str:
    """The rounds done, and the planned number if that is another: `150`, `80..120 of 150`."""
    done, planned = {run.rounds for run in runs}, {run.config.rounds for run in runs}
    return _span(done) if done == planned else f"{_span(done)} of {_span(planned)}"


def gains_from_asd(experiment: RunGroup) -> dict[str, float]:
    """Only where both sides have the same rounds: with ASD a curve may be behind early and ahead late."""
    result = {}
    for label in experiment.labels:
        baseline = label.replace("+ASD", "")
        if baseline == label or baseline not in experiment.labels:
            continue
        with_asd, without = experiment.with_label(label), experiment.with_label(baseline)
        ends = {max(curve) for run in (*with_asd, *without) if (curve := run.accuracies(experiment.model))}
        ours, theirs = mean_accuracy(with_asd, experiment.model), mean_accuracy(without, experiment.model)
        if len(ends) == 1 and ours is not None and theirs is not None:
            result[label] = ours - theirs
    return result


def difference_from_paper(runs: Sequence[RecordedRun], paper: Expected) -> float | None:
    """Our mean minus the paper's; None where the two are not comparable."""
    fair = paper.comparable and "rounds" not in paper.differs and all(run.finished for run in runs)
    ours = mean_accuracy(runs, paper.model)
    return ours - paper.mean if fair and ours is not None else None


def paper_text(paper: Expected | None) -> str:
    """`31.28 ± 0.40 (sel)`."""
    return "-" if paper is None else f"{format_accuracy(paper.mean, paper.std)} ({paper.model})"


def mean_accuracy(runs: Sequence[RecordedRun], model: str) -> float | None:
    values = [value for run in runs if (value := run.accuracy(model)) is not None]
    return statistics.fmean(values) if values else None


def _evaluated_models(runs: Sequence[RecordedRun]) -> list[str]:
    """The headline first."""
    order = dict.fromkeys((headline_model(runs[0].config), *MODEL_DESCRIPTIONS))
    return [model for model in order if any(run.accuracy(model) is not None for run in runs)]


def _span(numbers: set[int]) -> str:
    return "..".join(str(number) for number in dict.fromkeys((min(numbers), max(numbers))))

"""The table of final accuracies: ours, and the paper's where there are some."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from ..common.formatting import MODELS
from ..common.html import Html, element, joined, section, table
from ..common.table import Table
from ..presets import Expected
from ..simulation.storage.recorded_run import Run
from .experiment import Experiment


def section_of(experiment: Experiment) -> Html:
    expected, gains = experiment.expected, gains_by_asd(experiment)
    models = [model for model in MODELS if any(run.accuracy(model) is not None for run in experiment.runs)]
    columns = ["", "seeds", "rounds", *(f"acc {model}" for model in models)]
    columns += ["gain by ASD"] * bool(gains) + ["paper", "ours - paper"] * bool(expected)
    rows = []
    for label in experiment.labels:
        runs = experiment.of(label)
        row = [label, ", ".join(str(run.config.seed) for run in runs), rounds_text(runs)]
        row += [mean_text([run.accuracy(model) for run in runs]) for model in models]
        if gains:
            row.append(_signed(gains.get(label)))
        if expected:
            paper = expected.get(label)
            row += ["-", "-"] if paper is None else [_paper_text(paper), _signed(beside_the_paper(runs, paper))]
        rows.append(row)
    several = len(experiment.runs) > len(experiment.labels)
    caption = "Test accuracy in % at the last evaluation" + ", mean ± deviation over seeds" * several
    said = [f"{model}: {MODELS[model]}" for model in models]
    if any(len({run.rounds for run in experiment.of(label)}) > 1 for label in experiment.labels):
        said.append("seeds that got unequally far count with the last evaluation of each")
    if gains:
        said.append(
            f"gain by ASD: points of acc {experiment.model} over the same method without it, where both got equally far"
        )
    if expected:
        said.append("ours - paper: in points, only where a finished run has the paper's settings and rounds")
    remarks = [
        element("li", f"Paper, {label}: {paper}") for label, paper in expected.items() if paper.differs or paper.suspect
    ]
    return section(
        3,
        "Results",
        table(columns, rows, caption),
        element("p", "; ".join(said), ".", class_="muted") if said else "",
        element("ul", joined(remarks), class_="muted") if remarks else "",
    )


def rounds_text(runs: Sequence[Run]) -> str:
    """150, or how far of how far: 80..120 of 150."""
    done, planned = {run.rounds for run in runs}, {run.config.rounds for run in runs}
    return _span(done) if done == planned else f"{_span(done)} of {_span(planned)}"


def gains_by_asd(experiment: Experiment) -> dict[str, float]:
    """Only where both sides got equally far: with ASD a curve may be behind early and ahead late."""
    result = {}
    for label in experiment.labels:
        plain = label.replace("+ASD", "")
        if plain == label or plain not in experiment.labels:
            continue
        with_asd, without = experiment.of(label), experiment.of(plain)
        ends = {curve[0][-1] for run in (*with_asd, *without) if (curve := run.curve(experiment.model))[0]}
        ours, theirs = mean(with_asd, experiment.model), mean(without, experiment.model)
        if len(ends) == 1 and ours is not None and theirs is not None:
            result[label] = ours - theirs
    return result


def beside_the_paper(runs: Sequence[Run], paper: Expected) -> float | None:
    """Our mean minus the paper's, where that says something."""
    fair = paper.comparable and "rounds" not in paper.differs and all(run.finished for run in runs)
    ours = mean(runs, paper.model)
    return ours - paper.mean if fair and ours is not None else None


def mean(runs: Sequence[Run], model: str) -> float | None:
    values = [value for run in runs if (value := run.accuracy(model)) is not None]
    return statistics.fmean(values) if values else None


def _paper_text(paper: Expected) -> str:
    return f"{paper.mean:.2f}" + ("" if paper.std is None else f" ± {paper.std:.2f}") + f" ({paper.model})"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.2f}"


def _span(numbers: set[int]) -> str:
    return "..".join(str(number) for number in dict.fromkeys((min(numbers), max(numbers))))


def results_table(runs: Sequence[Run], paper: Mapping[str, str] | None = None, title: str = "") -> Table:
    """A row for each label: accuracies at the last evaluation, mean and standard deviation over seeds."""
    labels = list(dict.fromkeys(run.label for run in runs))
    models = [m for m in ("all", "sel", "cloud") if any(run.accuracy(m) is not None for run in runs)]
    columns = ["", "seeds", "rounds", *(f"acc {model}" for model in models), "seconds", "client updates/s"]
    rows = []
    for label in labels:
        seeds = [run for run in runs if run.label == label]
        rounds = sorted({run.rounds for run in seeds})
        rows.append(
            [
                label,
                str(len(seeds)),
                str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]}..{rounds[-1]}",
                *(mean_text([run.accuracy(model) for run in seeds]) for model in models),
                f"{sum(run.seconds for run in seeds):.1f}",
                f"{statistics.fmean(run.updates_per_second for run in seeds):.1f}",
            ]
        )
    if paper and any(paper.get(label) for label in labels):
        columns.append("paper")
        for label, row in zip(labels, rows, strict=True):
            row.append(paper.get(label, ""))
    note = "acc: % at the last evaluation; all: every client's last model, averaged; "
    note += "sel: the round's participants; cloud: what the server sends"
    return Table(columns, rows, title, note)


def mean_text(values: Sequence[float | None]) -> str:
    """`93.50`, or `93.50 ± 0.31` over seeds; a dash where nothing was evaluated."""
    numbers = [value for value in values if value is not None]
    if not numbers:
        return "-"
    mean = f"{statistics.fmean(numbers):.2f}"
    return mean if len(numbers) == 1 else f"{mean} ± {statistics.stdev(numbers):.2f}"

"""What the commands leave in a run directory and print at the end: summary, plots, report page."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import presets
from ..common.files import write_atomically
from ..common.formatting import MODEL_DESCRIPTIONS, method_label, plural
from ..common.plotting import save_figure
from ..report.accuracy_plot import accuracy_figure, common_settings
from ..report.page import write_report
from ..simulation.storage.recorded_run import RecordedRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_outputs(run: RecordedRun) -> None:
    """Summary, accuracy plot and report page of one run."""
    assert run.out is not None
    paper = presets.expected(run.config)
    model = presets.headline_model(run.config)
    line = {run.label: paper.mean} if paper and paper.comparable and paper.model == model else None
    title = f"{run.config.name}: {run.label}, seed {run.config.seed}"
    text = summary(run, paper)
    write_atomically(run.out / "summary.txt", (text + "\n").encode())
    print(text)
    rounds = paper.rounds if paper else None
    save_accuracy_plot(run.out / "accuracy.png", [run], model=model, paper=line, paper_rounds=rounds, title=title)
    write_page([run], run.out, title=title)


def save_accuracy_plot(path: Path, runs: list[RecordedRun], **options: Any) -> None:
    subtitle = common_settings([run.config for run in runs])
    save_plot(path, lambda: accuracy_figure(runs, subtitle=subtitle, **options))


def save_plot(path: Path, make: Callable[[], Figure | None], label: str = "plot      ") -> None:
    """Saves the figure, if there is one, and prints its path; without matplotlib it prints why there is none."""
    try:
        figure = make()
    except ModuleNotFoundError as error:
        print(f"no plot: {error}")
        return
    if figure is not None:
        print(f"  {label}{save_figure(figure, path)}")


def write_page(runs: Iterable[RecordedRun], out: Path, **options: Any) -> None:
    """out/report.html; without matplotlib there is none, and `save_plot` has said so."""
    folders = [run.out for run in runs if run.out]
    with contextlib.suppress(ModuleNotFoundError):
        print(f"  page      {write_report(folders, out / 'report.html', **options).path}")


def summary(run: RecordedRun, paper: presets.Expected | None) -> str:
    config = run.config
    lines = [
        f"{config.name}: {method_label(config.method)}, seed {config.seed}, {run.rounds} of {config.rounds} rounds",
        *_accuracy_lines(run),
        f"  time      {run.seconds:.1f} s, {run.updates_per_second:.1f} client updates/s",
    ]
    if training := (run.versions[-1].get("training") if run.versions else None):
        lines.append(f"  training  {training}")
    if warning := failure_warning(run):
        lines.append(f"  warning   {warning}")
    if paper:
        lines.append(f"  paper     {paper}")
    return "\n".join([*lines, f"  folder    {run.out}"])


def failure_warning(run: RecordedRun) -> str:
    """How many clients failed and were dropped (on_client_error = drop); empty if none did."""
    if not (failed := run.failed_updates):
        return ""
    rounds = sum(bool(row.get("failed")) for row in run.metrics)
    updates = failed + round(run.total("client_updates"))
    return f"{failed:,} of {updates:,} client updates failed and were left out, in {plural(rounds, 'round')}"


def print_failures(runs: Iterable[RecordedRun]) -> None:
    for run in runs:
        if warning := failure_warning(run):
            print(f"  warning   {run.label}, seed {run.config.seed}: {warning}")


def _accuracy_lines(run: RecordedRun) -> list[str]:
    """The headline with its meaning; the other averaged models below it."""
    headline = presets.headline_model(run.config)
    found = {model: value for model in MODEL_DESCRIPTIONS if (value := run.accuracy(model)) is not None}
    if headline not in found:
        return ["  accuracy  not evaluated"]
    others = "   ".join(f"{model} {value:.2f} %" for model, value in found.items() if model != headline)
    first = f"  accuracy  {headline} {found[headline]:.2f} %: {MODEL_DESCRIPTIONS[headline]}"
    return [first, f"            {others}"] if others else [first]

"""What the commands leave in a run directory and print at the end: summary, plots, report page."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import presets
from ..common.files import write_atomically
from ..common.formatting import method_label
from ..common.plotting import save_figure
from ..report.accuracy_plot import accuracy_figure, common_settings
from ..report.page import write_report
from ..simulation.storage.recorded_run import RecordedRun, model_to_show

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_outputs(run: RecordedRun) -> None:
    """Summary, accuracy plot and report page of one run."""
    assert run.out is not None
    paper = presets.expected(run.config)
    model = model_to_show(run.config, paper.model if paper else "all")
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
    accuracies = [
        f"{model} {value:.2f} %" for model in config.eval_models if (value := run.accuracy(model)) is not None
    ]
    lines = [
        f"{config.name}: {method_label(config.method)}, seed {config.seed}, {run.rounds} of {config.rounds} rounds",
        f"  accuracy  {'   '.join(accuracies) or 'not evaluated'}",
        f"  time      {run.seconds:.1f} s, {run.updates_per_second:.1f} client updates/s",
    ]
    if paper:
        lines.append(f"  paper     {paper}")
    return "\n".join([*lines, f"  folder    {run.out}"])

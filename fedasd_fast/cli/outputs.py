"""What the commands print at the end, and the plots and pages that they name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.plotting import save_figure
from ..report.accuracy_plot import accuracy_figure, common_settings
from ..report.page import write_report
from ..report.run_outputs import failure_warning, plot_path, run_figure, save_summary, write_run_page
from ..simulation.storage.recorded_run import RecordedRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_outputs(run: RecordedRun) -> None:
    """Summary, accuracy plot and report page of one run."""
    print(save_summary(run), flush=True)
    save_plot(plot_path(run), lambda: run_figure(run))
    with contextlib.suppress(ModuleNotFoundError):
        print(f"  page      {write_run_page(run)}")


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


def print_failures(runs: Iterable[RecordedRun]) -> None:
    for run in runs:
        if warning := failure_warning(run):
            print(f"  warning   {run.label}, seed {run.config.seed}: {warning}")

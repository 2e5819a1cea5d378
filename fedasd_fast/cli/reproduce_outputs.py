"""What `fedasd reproduce` writes and prints: the comparison with the paper, plots, the report page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from ..common.files import write_atomically
from ..common.formatting import method_label
from ..report.accuracy_plot import common_settings
from ..report.setting_plot import SettingPoint, numeric_axis, setting_figure
from ..reproduce.comparison import compare_with_paper
from ..reproduce.comparison_report import PaperComparison
from ..reproduce.grid import Cell, Grid
from ..reproduce.time_budget import GridPlan
from ..simulation.storage.recorded_run import RecordedRun
from .outputs import print_failures, save_accuracy_plot, save_plot, write_page
from .sweep import MAX_CURVES

Runs = Mapping[tuple[str, int], RecordedRun]  # by the cell's name and the seed


def write_comparison(comparison: PaperComparison, out: Path) -> None:
    texts = {"md": comparison.markdown(), "txt": comparison.text() + "\n", "json": comparison.json()}
    for suffix, text in texts.items():
        write_atomically(out / f"report.{suffix}", text.encode())


def print_comparison(comparison: PaperComparison, out: Path) -> None:
    write_comparison(comparison, out)
    print("\n" + comparison.text())
    print(f"\n  report    {out / 'report.md'} (also .txt, .json)")


def show_comparison(grid: Grid, plan: GridPlan, runs: Runs, out: Path, command: str) -> None:
    """Tables, plots, and a report page with all of them."""
    comparison = compare_with_paper(grid, plan, runs, command)
    print_comparison(comparison, out)
    print_failures(runs.values())
    save_plots(grid, runs, out, comparison)
    data_dir = grid.cells[0].config.data_dir
    write_page(runs.values(), out, title=grid.name, data_dir=data_dir, introduction=comparison.section())


def save_plots(grid: Grid, runs: Runs, out: Path, comparison: PaperComparison) -> None:
    """Accuracy against rounds, a plot for each setting; and against the setting, if that is a number."""
    numbers = {number.label: number for number in comparison.numbers}
    model = comparison.numbers[0].model
    for where, curves in plot_panels(grid):
        shown = [
            replace(run, label=label) for label, cell in curves for (name, _), run in runs.items() if name == cell.name
        ]
        paper = {label: number.paper for label, cell in curves if (number := numbers[cell.label]).drawable}
        rounds = max((numbers[cell.label].paper_rounds or 0 for _, cell in curves), default=0) or None
        title = f"{grid.name}{', ' * bool(where)}{where}"
        if shown:
            path = out / f"accuracy{'-' * bool(where)}{where}.png"
            save_accuracy_plot(path, shown, model=model, paper=paper, paper_rounds=rounds, title=title)
    if axis := numeric_axis(grid.axes):
        points = [SettingPoint(n.point, n.values, n.paper if n.drawable else None) for n in comparison.numbers]
        at = sorted({number.round for number in comparison.numbers if number.round is not None})
        when = f", after round {at[0]}" + (f" to {at[-1]}" if len(at) > 1 else "") if at else ""
        subtitle = common_settings([cell.config for cell in grid.cells]) + when
        save_plot(
            out / "over.png",
            lambda: setting_figure(points, axis, model=model, title=grid.name, subtitle=subtitle),
        )


def plot_panels(grid: Grid) -> Iterator[tuple[str, list[tuple[str, Cell]]]]:
    """The curves of each plot: the methods in one setting; or all cells, if there is only one method."""
    groups: dict[str, list[Cell]] = {}
    for cell in grid.cells:
        settings = cell.comparison_settings
        where = ",".join(f"{key}={settings[key]}" for key in cell.shown if key in settings)
        groups.setdefault(where, []).append(cell)
    if len(groups) == len(grid.cells) > 1:
        if len(groups) <= MAX_CURVES:
            yield "", [(cell.label, cell) for cell in grid.cells]
        return
    for where, cells in groups.items():
        yield where, [(_curve_label(cell), cell) for cell in cells]


def _curve_label(cell: Cell) -> str:
    weighting = cell.point.get("asd.weighting")
    return method_label(cell.config.method) + (f", {weighting} weights" if weighting else "")

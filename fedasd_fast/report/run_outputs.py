"""What a run leaves in its run directory when it ends: summary.txt, accuracy.png, report.html and its figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .. import presets
from ..common.durations import format_duration
from ..common.files import write_atomically
from ..common.formatting import MODEL_DESCRIPTIONS, method_label, plural
from ..common.plotting import save_figure
from ..simulation.storage.recorded_run import RecordedRun
from .accuracy_plot import accuracy_figure, common_settings
from .milestones import best_evaluation, rounds_to, seconds_to, traffic_text
from .page import write_report

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_run_outputs(run: RecordedRun) -> None:
    """All of them; plots and page need matplotlib."""
    save_summary(run)
    save_figure(run_figure(run), plot_path(run))
    write_run_page(run)


def save_summary(run: RecordedRun) -> str:
    """Writes summary.txt and returns its text."""
    text = summary(run, presets.expected(run.config))
    write_atomically(_directory(run) / "summary.txt", (text + "\n").encode())
    return text


def run_figure(run: RecordedRun) -> Figure:
    """Accuracy against rounds, with the paper's number where there is one."""
    paper, model = presets.expected(run.config), presets.headline_model(run.config)
    return accuracy_figure(
        [run],
        model=model,
        paper={run.label: paper.mean} if paper and paper.comparable and paper.model == model else None,
        paper_rounds=paper.rounds if paper else None,
        title=_title(run),
        subtitle=common_settings([run.config]),
    )


def plot_path(run: RecordedRun) -> Path:
    return _directory(run) / "accuracy.png"


def write_run_page(run: RecordedRun) -> Path:
    return write_report([_directory(run)], _directory(run) / "report.html", title=_title(run)).path


def summary(run: RecordedRun, paper: presets.Expected | None) -> str:
    config = run.config
    lines = [
        f"{config.name}: {method_label(config.method)}, seed {config.seed}, {run.rounds} of {config.rounds} rounds",
        *_accuracy_lines(run),
        *_milestone_lines(run),
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


def _accuracy_lines(run: RecordedRun) -> list[str]:
    """The headline with its meaning; the other averaged models below it."""
    headline = presets.headline_model(run.config)
    found = {model: value for model in MODEL_DESCRIPTIONS if (value := run.accuracy(model)) is not None}
    if headline not in found:
        return ["  accuracy  not evaluated"]
    others = "   ".join(f"{model} {value:.2f} %" for model, value in found.items() if model != headline)
    first = f"  accuracy  {headline} {found[headline]:.2f} %: {MODEL_DESCRIPTIONS[headline]}"
    return [first, f"            {others}"] if others else [first]


def _milestone_lines(run: RecordedRun) -> list[str]:
    """The best round if it is not the last; rounds, bytes and simulated time to the target, and of the whole run; the
    accuracy over clients."""
    model, lines = presets.headline_model(run.config), []
    best = best_evaluation(run, model)
    if best and best.accuracy != run.accuracy(model):
        lines.append(f"  best      {model} {best.accuracy:.2f} % in round {best.round}")
    if (target := run.config.target_accuracy) is not None:
        reached = rounds_to(run, model, 100 * target)
        until = "not reached" if reached is None else f"in round {reached}, with {traffic_text(run, reached)}"
        if (seconds := seconds_to(run, reached)) is not None:
            until += f", after {format_duration(seconds)} of simulated time"
        lines.append(f"  target    {model} {100 * target:g} %: {until}")
    if run.total("bytes_up"):
        lines.append(f"  traffic   {traffic_text(run, run.rounds)}")
    if (seconds := seconds_to(run, run.rounds)) is not None:
        lines.append(f"  devices   {format_duration(seconds)} of simulated time{_cut_text(run)}")
    if (mean := run.curve(f"client_acc_mean_{model}")) and (worst := run.curve(f"client_acc_worst_tenth_{model}")):
        last = max(mean)
        lines.append(
            f"  clients   {model} {mean[last]:.2f} % on average over their labels, worst tenth {worst[last]:.2f} %"
        )
    return lines


def _cut_text(run: RecordedRun) -> str:
    if run.config.devices.deadline is None:
        return ""
    cut, counted = (round(run.total(key)) for key in ("cut_by_deadline", "client_updates"))
    return f", {cut:,} of {cut + counted:,} client updates cut by the deadline"


def _title(run: RecordedRun) -> str:
    return f"{run.config.name}: {run.label}, seed {run.config.seed}"


def _directory(run: RecordedRun) -> Path:
    assert run.out is not None
    return run.out

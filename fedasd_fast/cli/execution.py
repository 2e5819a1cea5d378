"""Runs into folders, and what is left in them and said at their end."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import presets
from ..callbacks import Callback, Progress, TensorBoard, WandB
from ..common.formatting import pretty
from ..common.plotting import save
from ..common.schema import ConfigError
from ..config import Config
from ..report import accuracy_plot as curves
from ..report import page
from ..simulation.storage.recorded_run import Run, read, shown_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def start(config: Config, folder: Path, arguments: argparse.Namespace) -> Run:
    from ..simulation import simulate

    return _watched(folder, arguments, lambda callbacks: simulate(config.replace(out=str(folder)), callbacks=callbacks))


def follow(config: Config) -> None:
    """A rank that leaves writing and printing to the leader."""
    from ..simulation import simulate

    simulate(config)


def go_on(folder: Path, arguments: argparse.Namespace, changes: Mapping[str, Any] | None = None) -> Run:
    from ..simulation import resume

    return _watched(folder, arguments, lambda callbacks: resume(folder, changes, callbacks=callbacks))


def ensure(config: Config, folder: Path, arguments: argparse.Namespace) -> Run:
    """The run in this folder: as it is if finished, continued if interrupted, started if there is none.

    One that has fewer rounds than are wanted now goes on to them; one that has more is kept.
    """
    if not (folder / "config.yaml").exists():
        return start(config, folder, arguments)
    found = read(folder)
    refuse_other_settings(config, found)
    longer = found.rounds > config.rounds
    killed_at_the_end = (folder / "checkpoint").exists() and not (folder / "models.pt").exists()
    if longer or (found.rounds == config.rounds and not killed_at_the_end):
        print(f"{folder}: finished already" + (f", with {found.rounds} rounds" if longer else ""))
        return found
    return go_on(folder, arguments, {"rounds": config.rounds} if found.config.rounds != config.rounds else None)


def refuse_other_settings(config: Config, found: Run) -> None:
    """A run that is there must be the one that is wanted, but for its length."""
    changed = set(presets.differences(config.to_dict(), found.config.to_dict())) - {"rounds"}
    if changed or config.seed != found.config.seed:
        raise ConfigError(
            f"{found.out} holds a run with other settings ({', '.join(sorted(changed)) or 'seed'}); choose another "
            "--out, or remove that folder"
        )


def _watched(folder: Path, arguments: argparse.Namespace, work: Callable[[list[Callback]], Any]) -> Run:
    progress = Progress()
    callbacks: list[Callback] = [] if arguments.quiet else [progress]
    if arguments.tensorboard:
        callbacks.append(TensorBoard())
    if arguments.wandb:
        callbacks.append(WandB())
    try:
        work(callbacks)
    finally:
        progress.close()
    return read(folder)


def finish(run: Run) -> None:
    """Figure and summary, in the folder and on the screen."""
    assert run.out is not None
    paper = presets.expected(run.config)
    model = shown_model(run.config, paper.model if paper else "all")
    line = {run.label: paper.mean} if paper and paper.comparable and paper.model == model else None
    title = f"{run.config.name}: {run.label}, seed {run.config.seed}"
    text = summary(run, paper)
    (run.out / "summary.txt").write_text(text + "\n")
    print(text)
    rounds = paper.rounds if paper else None
    draw(run.out / "accuracy.png", [run], model=model, paper=line, paper_rounds=rounds, title=title)
    write_page([run], run.out, title=title)


def draw(path: Path, runs: list[Run], **options: Any) -> None:
    subtitle = curves.setting_text([run.config for run in runs])
    picture(path, lambda: curves.accuracy_figure(runs, subtitle=subtitle, **options))


def picture(path: Path, make: Callable[[], Figure]) -> None:
    """The figure; a finished run without matplotlib is a finished run all the same."""
    try:
        figure = make()
    except ModuleNotFoundError as error:
        print(f"no picture: {error}")
    else:
        print(f"  picture   {save(figure, path)}")


def write_page(runs: Iterable[Run], out: Path, **options: Any) -> None:
    """out/report.html; without matplotlib there is none, and `picture` has said so."""
    folders = [run.out for run in runs if run.out]
    with contextlib.suppress(ModuleNotFoundError):
        print(f"  page      {page.write(folders, out / 'report.html', **options).path}")


def summary(run: Run, paper: presets.Expected | None) -> str:
    config = run.config
    accuracies = [
        f"{model} {value:.2f} %" for model in config.eval_models if (value := run.accuracy(model)) is not None
    ]
    lines = [
        f"{config.name}: {pretty(config.method)}, seed {config.seed}, {run.rounds} of {config.rounds} rounds",
        f"  accuracy  {'   '.join(accuracies) or 'not evaluated'}",
        f"  time      {run.seconds:.1f} s, {run.updates_per_second:.1f} client updates/s",
    ]
    if paper:
        lines.append(f"  paper     {paper}")
    return "\n".join([*lines, f"  folder    {run.out}"])

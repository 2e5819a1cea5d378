"""From runs to numbers: means over seeds, gains seed by seed, and a verdict where one is possible."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from .. import presets
from ..simulation.storage.recorded_run import Run, shown_model
from .comparison_report import Gain, Number, Results
from .grid import Cell, Grid
from .time_budget import Plan
from .verdict import deviation, noise, verdict


def results(grid: Grid, plan: Plan, runs: Mapping[tuple[str, int], Run], command: str) -> Results:
    """`runs` by the cell's name and seed: those that have begun."""
    preset = presets.describe(grid.name)
    by_cell = {
        cell.name: [runs[cell.name, seed] for seed in plan.seeds if (cell.name, seed) in runs] for cell in grid.cells
    }
    return Results(
        name=grid.name,
        source=preset.get("source", ""),
        command=command,
        choice=plan.choice,
        unstated=tuple(preset.get("inferred", ())),
        notes=tuple(preset.get("notes", ())),
        numbers=tuple(_number(cell, plan, by_cell[cell.name]) for cell in _by_method(grid.cells)),
        gains=tuple(gain for cell in _by_method(grid.cells) if (gain := _gain(cell, grid, plan, by_cell))),
        seconds=sum(run.seconds for run in runs.values()),
    )


def _by_method(cells: Sequence[Cell]) -> list[Cell]:
    """As in the paper: a row of the table is a method."""
    methods = list(dict.fromkeys(cell.config.base_method for cell in cells))
    return sorted(cells, key=lambda cell: methods.index(cell.config.base_method))


def _number(cell: Cell, plan: Plan, begun: Sequence[Run]) -> Number:
    config = plan.config(cell, 0)
    paper = presets.expected(config)
    model = shown_model(config, paper.model if paper else "all")
    finished = [run for run in begun if run.rounds >= config.rounds]
    counted = finished or [run for run in begun if run.curve(model)[0]]
    at, values = _common(counted, model, config.rounds)
    ours = noise(values, [_until(run, model, at) for run in counted])
    mean = statistics.fmean(values) if values else None
    said, why = _judged(paper, model, at, config.rounds, mean, ours)
    return Number(
        label=cell.label,
        point=dict(cell.point),
        model=model,
        planned_seeds=len(plan.seeds),
        planned_rounds=config.rounds,
        seeds=tuple(run.config.seed for run in counted),
        rounds=tuple(run.rounds for run in counted),
        round=at,
        mean=mean,
        std=deviation(values),
        noise=ours if values else None,
        values=tuple(values),
        paper=paper.mean if paper else None,
        paper_std=paper.std if paper else None,
        paper_rounds=paper.rounds if paper else None,
        differs=paper.differs if paper else (),
        suspect=paper.suspect if paper else None,
        verdict=said,
        why=why,
        also={
            other: value
            for other in ("all", "sel")
            if other != model and (value := _mean_at(counted, other, at)) is not None
        },
        hessian=_hessian(finished),
        paper_hessian=dict(paper.others) if paper else {},
        drawable=paper is not None and paper.comparable and paper.model == model,
    )


def _judged(
    paper: presets.Expected | None, model: str, at: int | None, planned: int, mean: float | None, ours: float
) -> tuple[str, str | None]:
    """The verdict, and why there can be none."""
    if mean is None or at is None:
        return "not run yet", None
    if paper is None:
        return "no number in the paper", None
    differs = [name for name in paper.differs if name != "rounds"]
    why = [f"other {', '.join(differs)}"] if differs else []
    if at != paper.rounds:
        why.append(f"round {at}, the paper's is {paper.rounds}")
    if model != paper.model:
        why.append(f"model {model}, the paper's is {paper.model}")
    if why:
        return "unfinished" if at < planned else "not comparable", "; ".join(why)
    return verdict(mean - paper.mean, paper.std, ours) + (" *" if paper.suspect else ""), None


def _gain(cell: Cell, grid: Grid, plan: Plan, by_cell: Mapping[str, Sequence[Run]]) -> Gain | None:
    rival = next((other for other in grid.cells if other.point == cell.rival()), None)
    if rival is None:
        return None
    planned = plan.config(cell, 0).rounds
    bases = {run.config.seed: run for run in by_cell[rival.name]}
    pairs = [(run, bases[run.config.seed]) for run in by_cell[cell.name] if run.config.seed in bases]
    pairs = [pair for pair in pairs if min(run.rounds for run in pair) >= planned] or pairs
    paper, base = presets.expected(cell.config), presets.expected(rival.config)
    model = shown_model(cell.config, paper.model if paper else "all")
    at, _ = _common([run for pair in pairs for run in pair], model, planned)
    if at is None:
        return None
    differences = [_at(run, model, at) - _at(other, model, at) for run, other in pairs]
    mean = statistics.fmean(differences)
    expected = paper.mean - base.mean if paper and base else None
    said = "no number in the paper"
    if paper and base and expected is not None:
        differs = {*paper.differs, *base.differs} - {"rounds"}
        if differs or at != paper.rounds or model != paper.model:
            said = "not comparable"
        else:
            both = None if paper.std is None or base.std is None else (paper.std**2 + base.std**2) ** 0.5
            curves = [_differences(run, other, model, at) for run, other in pairs]
            said = verdict(mean - expected, both, noise(differences, curves)) + (
                " *" if paper.suspect or base.suspect else ""
            )
    return Gain(
        cell.label,
        rival.label,
        tuple(run.config.seed for run, _ in pairs),
        at,
        mean,
        deviation(differences),
        expected,
        said,
    )


def _common(runs: Sequence[Run], model: str, until: int) -> tuple[int | None, list[float]]:
    """The last round, up to `until`, that all of them have evaluated, and their accuracies there."""
    rounds = [set(run.curve(model)[0]) for run in runs]
    shared = [round for round in set.intersection(*rounds) if round <= until] if rounds else []
    if not shared:
        return None, []
    return max(shared), [_at(run, model, max(shared)) for run in runs]


def _at(run: Run, model: str, round: int) -> float:
    return dict(zip(*run.curve(model), strict=True))[round]


def _mean_at(runs: Sequence[Run], model: str, round: int | None) -> float | None:
    """Over the runs that have evaluated it."""
    found = [curve[round] for run in runs if round in (curve := dict(zip(*run.curve(model), strict=True)))]
    return statistics.fmean(found) if found else None


def _until(run: Run, model: str, round: int | None) -> list[float]:
    return [value for at, value in zip(*run.curve(model), strict=True) if round is not None and at <= round]


def _differences(one: Run, other: Run, model: str, round: int) -> list[float]:
    """At the rounds that both have evaluated."""
    theirs = dict(zip(*other.curve(model), strict=True))
    ours = zip(*one.curve(model), strict=True)
    return [value - theirs[at] for at, value in ours if at in theirs and at <= round]


def _hessian(runs: Sequence[Run]) -> dict[str, float]:
    """What `fedasd analyse` found in the folders of these runs, averaged over seeds."""
    spectra = []
    for run in runs:
        path = (run.out or Path()) / "analysis" / "hessian.json"
        found = json.loads(path.read_text()) if path.is_file() else {}
        if found.get("round") == run.rounds:  # not from an earlier state
            spectra.append(found["spectrum"])
    if not spectra:
        return {}
    top = statistics.fmean(spectrum["top"][0] for spectrum in spectra)
    return {"top_eigenvalue": top, "trace": statistics.fmean(spectrum["trace"] for spectrum in spectra)}

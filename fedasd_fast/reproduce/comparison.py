"""Comparison of a grid's runs with the paper: means over seeds, gains per seed, and verdicts."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from .. import presets
from ..simulation.storage.recorded_run import RecordedRun
from .comparison_report import AsdGain, CellResult, PaperComparison
from .grid import Cell, Grid
from .time_budget import GridPlan
from .verdict import noise, standard_deviation, verdict

_OTHER_MODELS = {"all": ("sel",), "sel": ("all",), "cloud": ("sel", "all")}  # shown beside the one compared


def compare_with_paper(
    grid: Grid, plan: GridPlan, runs: Mapping[tuple[str, int], RecordedRun], command: str
) -> PaperComparison:
    """`runs` are those that have begun, by the cell's name and the seed."""
    preset = presets.describe(grid.name)
    by_cell = {
        cell.name: [runs[cell.name, seed] for seed in plan.seeds if (cell.name, seed) in runs] for cell in grid.cells
    }
    cells = _by_method(grid.cells)
    return PaperComparison(
        name=grid.name,
        source=preset.get("source", ""),
        command=command,
        choice=plan.choice,
        unstated=tuple(preset.get("inferred", ())),
        notes=tuple(preset.get("notes", ())),
        numbers=tuple(_cell_result(cell, plan, by_cell[cell.name]) for cell in cells),
        gains=tuple(gain for cell in cells if (gain := _gain(cell, grid, plan, by_cell))),
        seconds=sum(run.seconds for run in runs.values()),
    )


def _by_method(cells: Sequence[Cell]) -> list[Cell]:
    """As in the paper, where a row of the table is a method."""
    methods = list(dict.fromkeys(cell.config.base_method for cell in cells))
    return sorted(cells, key=lambda cell: methods.index(cell.config.base_method))


def _cell_result(cell: Cell, plan: GridPlan, begun: Sequence[RecordedRun]) -> CellResult:
    config = plan.config(cell, 0)
    paper = presets.expected(config)
    model = presets.headline_model(config)
    finished = [run for run in begun if run.rounds >= config.rounds]
    counted = finished or [run for run in begun if run.accuracies(model)]
    at, values = _last_common(counted, model, config.rounds)
    our_noise = noise(values, [_until(run, model, at) for run in counted])
    mean = statistics.fmean(values) if values else None
    judgement, why = _judge(paper, model, at, config.rounds, mean, our_noise)
    return CellResult(
        label=cell.label,
        point=dict(cell.point),
        model=model,
        planned_seeds=len(plan.seeds),
        planned_rounds=config.rounds,
        seeds=tuple(run.config.seed for run in counted),
        rounds=tuple(run.rounds for run in counted),
        round=at,
        mean=mean,
        std=standard_deviation(values),
        noise=our_noise if values else None,
        values=tuple(values),
        paper=paper.mean if paper else None,
        paper_std=paper.std if paper else None,
        paper_rounds=paper.rounds if paper else None,
        differs=paper.differs if paper else (),
        suspect=paper.suspect if paper else None,
        verdict=judgement,
        why=why,
        also={other: value for other in _OTHER_MODELS[model] if (value := _mean_at(counted, other, at)) is not None},
        hessian=_hessian(finished),
        paper_hessian=dict(paper.others) if paper else {},
        drawable=paper is not None and paper.comparable and paper.model == model,
    )


def _judge(
    paper: presets.Expected | None, model: str, at: int | None, planned: int, mean: float | None, our_noise: float
) -> tuple[str, str | None]:
    """The verdict, and why there can be none."""
    if mean is None or at is None:
        return "not run yet", None
    if paper is None:
        return "no number in the paper", None
    differs = [name for name in paper.differs if name != "rounds"]
    why = [f"{', '.join(differs)} differ{'s' * (len(differs) == 1)} from the paper"] if differs else []
    if at != paper.rounds:
        why.append(f"round {at}, in the paper {paper.rounds}")
    if model != paper.model:
        why.append(f"model {model}, in the paper {paper.model}")
    if why:
        return "unfinished" if at < planned else "not comparable", "; ".join(why)
    return verdict(mean - paper.mean, paper.std, our_noise) + (" *" if paper.suspect else ""), None


def _gain(cell: Cell, grid: Grid, plan: GridPlan, by_cell: Mapping[str, Sequence[RecordedRun]]) -> AsdGain | None:
    baseline = next((other for other in grid.cells if other.point == cell.baseline_point()), None)
    if baseline is None:
        return None
    planned = plan.config(cell, 0).rounds
    bases = {run.config.seed: run for run in by_cell[baseline.name]}
    pairs = [(run, bases[run.config.seed]) for run in by_cell[cell.name] if run.config.seed in bases]
    pairs = [pair for pair in pairs if min(run.rounds for run in pair) >= planned] or pairs
    paper, paper_base = presets.expected(cell.config), presets.expected(baseline.config)
    model = presets.headline_model(cell.config)
    at, _ = _last_common([run for pair in pairs for run in pair], model, planned)
    if at is None:
        return None
    differences = [run.accuracies(model)[at] - base.accuracies(model)[at] for run, base in pairs]
    mean = statistics.fmean(differences)
    expected = paper.mean - paper_base.mean if paper and paper_base else None
    judgement = "no number in the paper"
    if paper and paper_base and expected is not None:
        differs = {*paper.differs, *paper_base.differs} - {"rounds"}
        if differs or at != paper.rounds or model != paper.model:
            judgement = "not comparable"
        else:
            stds = paper.std, paper_base.std
            paper_std = None if stds[0] is None or stds[1] is None else (stds[0] ** 2 + stds[1] ** 2) ** 0.5
            curves = [_differences(run, base, model, at) for run, base in pairs]
            judgement = verdict(mean - expected, paper_std, noise(differences, curves))
            judgement += " *" if paper.suspect or paper_base.suspect else ""
    return AsdGain(
        label=cell.label,
        over=baseline.label,
        seeds=tuple(run.config.seed for run, _ in pairs),
        round=at,
        mean=mean,
        std=standard_deviation(differences),
        paper=expected,
        verdict=judgement,
    )


def _last_common(runs: Sequence[RecordedRun], model: str, until: int) -> tuple[int | None, list[float]]:
    """The last round, up to `until`, that all runs have evaluated, and their accuracies there."""
    rounds = [set(run.accuracies(model)) for run in runs]
    shared = [round for round in set.intersection(*rounds) if round <= until] if rounds else []
    if not shared:
        return None, []
    return max(shared), [run.accuracies(model)[max(shared)] for run in runs]


def _mean_at(runs: Sequence[RecordedRun], model: str, round: int | None) -> float | None:
    """Over the runs that have evaluated this model at this round."""
    found = [curve[round] for run in runs if round is not None and round in (curve := run.accuracies(model))]
    return statistics.fmean(found) if found else None


def _until(run: RecordedRun, model: str, round: int | None) -> list[float]:
    return [value for at, value in run.accuracies(model).items() if round is not None and at <= round]


def _differences(run: RecordedRun, base: RecordedRun, model: str, round: int) -> list[float]:
    """At the rounds that both have evaluated."""
    theirs = base.accuracies(model)
    return [value - theirs[at] for at, value in run.accuracies(model).items() if at in theirs and at <= round]


def _hessian(runs: Sequence[RecordedRun]) -> dict[str, float]:
    """The results of `fedasd analyse` in the directories of these runs, averaged over seeds."""
    spectra = []
    for run in runs:
        path = (run.out or Path()) / "analysis" / "hessian.json"
        found = json.loads(path.read_text()) if path.is_file() else {}
        if found.get("round") == run.rounds:  # not of an earlier checkpoint
            spectra.append(found["spectrum"])
    if not spectra:
        return {}
    top = statistics.fmean(spectrum["top"][0] for spectrum in spectra)
    return {"top_eigenvalue": top, "trace": statistics.fmean(spectrum["trace"] for spectrum in spectra)}

"""Chooses how many seeds and rounds of a grid fit into a time budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..common.durations import format_duration
from ..common.formatting import plural
from ..common.schema import ConfigError
from ..config import Config
from ..simulation.storage.recorded_run import RecordedRun
from ..simulation.time_estimate import RunTiming
from .grid import Cell, Grid
from .run_timing import timing_key

_SAFETY_FACTOR = 1.1  # machines have other work too


@dataclass(frozen=True)
class GridPlan:
    """The seeds and rounds to run; `seconds` is an estimate, None if nothing was timed."""

    seeds: tuple[int, ...]
    rounds: int | None  # at most this many; None: each cell's own number
    seconds: float | None = None
    choice: str | None = None  # what the budget led to

    def config(self, cell: Cell, seed: int) -> Config:
        rounds = cell.config.rounds if self.rounds is None else min(self.rounds, cell.config.rounds)
        return cell.config.replace(seed=seed, rounds=rounds)


def fit_to_budget(
    grid: Grid,
    plan: GridPlan,
    timings: Mapping[tuple[Any, ...], RunTiming],
    done: Mapping[tuple[str, int], RecordedRun],
    budget: float | None,
    keep_seeds: bool,
) -> GridPlan:
    """The plan with its estimated time, reduced to the budget (seconds) if there is one.

    Seeds are dropped before rounds, because a run that stops early says little about its final accuracy.  With
    `keep_seeds` (the user named them) only rounds are.
    """

    def cost(seeds: Sequence[int], rounds: int | None) -> float:
        candidate = GridPlan(tuple(seeds), rounds)
        total = 0.0
        for cell, seed in grid.runs(seeds):
            run = done.get((cell.name, seed))
            config = candidate.config(cell, seed)
            total += timings[timing_key(cell.config)].seconds(config, config.rounds, run.rounds if run else 0)
        return _SAFETY_FACTOR * total

    whole = cost(plan.seeds, plan.rounds)
    if budget is None or whole <= budget:
        fits = None if budget is None else f"the whole grid fits into the budget: about {format_duration(whole)}"
        return replace(plan, seconds=whole, choice=fits)
    fewest = len(plan.seeds) if keep_seeds else 1
    for number in range(len(plan.seeds) - 1, fewest - 1, -1):
        if (total := cost(plan.seeds[:number], plan.rounds)) <= budget:
            text = f"{number} of {plural(len(plan.seeds), 'seed')} fit into the budget, with all rounds: about "
            return GridPlan(plan.seeds[:number], plan.rounds, total, text + format_duration(total))
    seeds = plan.seeds[:fewest]
    most = min(grid.rounds, plan.rounds or grid.rounds)
    rounds = _largest_affordable(lambda rounds: cost(seeds, rounds), most, budget)
    every = min(cell.config.eval_every for cell in grid.cells)
    rounds = rounds // every * every if rounds > every else rounds
    if rounds < 1:
        raise ConfigError(
            f"one round of the {len(grid.cells) * len(seeds)} runs takes about {format_duration(cost(seeds, 1))}, more "
            f"than the budget of {format_duration(budget)}; raise it, or choose fewer runs with --only"
        )
    total = cost(seeds, rounds)
    text = (
        f"{rounds} of {most} rounds, with {plural(len(seeds), 'seed')}, fit into the budget: about "
        f"{format_duration(total)}; all rounds would take {format_duration(cost(seeds, plan.rounds))}. Accuracies "
        "after fewer rounds are not comparable with the paper's (ASD learns more slowly at first): complete runs of a "
        "part of the grid, chosen with --only, say more"
    )
    return GridPlan(seeds, rounds, total, text)


def _largest_affordable(cost: Callable[[int], float], most: int, budget: float) -> int:
    """The largest number of rounds, up to `most`, whose cost is within the budget."""
    low, high = 0, most  # cost(low) fits, cost(high) may not
    while low < high:
        middle = math.ceil((low + high) / 2)
        low, high = (middle, high) if cost(middle) <= budget else (low, middle - 1)
    return low

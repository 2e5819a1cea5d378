"""How many rounds and seeds fit into a time: rounds are timed for each kind of run, and arithmetic does the rest."""

from __future__ import annotations

import contextlib
import math
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..callbacks import Callback
from ..common.schema import ConfigError
from ..config import Config
from ..simulation.storage.recorded_run import Run, read
from .grid import Cell, Grid

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_MARGIN = 1.1  # machines have other things to do too
_ENOUGH = 1.0  # seconds of a trial, unless two rounds take longer
_MOST = 20  # rounds of a trial


@dataclass(frozen=True)
class Pace:
    """What a kind of run takes, in seconds."""

    start: float
    round: float
    evaluation: float

    def of(self, config: Config, rounds: int, done: int = 0) -> float:
        """From round `done` to round `rounds`."""
        if done >= rounds:
            return 0.0
        evaluations = rounds // config.eval_every - done // config.eval_every + (rounds % config.eval_every > 0)
        return self.start + (rounds - done) * self.round + evaluations * self.evaluation


@dataclass(frozen=True)
class Plan:
    """What will be run; seconds are an estimate, None where nothing was timed."""

    seeds: tuple[int, ...]
    rounds: int | None  # at most so many; None: each cell's own number
    seconds: float | None = None
    choice: str | None = None  # what the budget led to

    def config(self, cell: Cell, seed: int) -> Config:
        rounds = cell.config.rounds if self.rounds is None else min(self.rounds, cell.config.rounds)
        return cell.config.replace(seed=seed, rounds=rounds)


def seconds(text: str) -> float:
    """`2h`, `90m`, `1h30m`, `45s`, `1.5d` as seconds."""
    parts = re.fullmatch(r"((?:\d+\.?\d*|\.\d+)[dhms])+", text.replace(" ", ""))
    total = sum(float(n) * _UNITS[unit] for n, unit in re.findall(r"(\d+\.?\d*|\.\d+)([dhms])", text)) if parts else 0.0
    if not total:
        raise ConfigError(f"--budget {text}; expected a time with its unit: 45m, 2h, 1h30m, 3d")
    return total


def duration(value: float) -> str:
    """`45 s`, `12 min`, `2.5 h`, `3.1 days`."""
    for unit, size, limit in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172800)):
        if value < limit:
            return f"{value / size:.{0 if unit != 'h' else 1}f} {unit}"
    return f"{value / 86400:.1f} days"


def kind(config: Config) -> tuple[Any, ...]:
    """Runs that agree in this take the same time."""
    c = config
    return (c.method, c.dataset, c.model, c.clients, c.participation, c.local_epochs, c.batch_size, c.augment,
            c.teacher, c.executor, c.threads, c.workers, str(c.model_args), str(c.eval_models))  # fmt: skip


def paces(grid: Grid, found: Mapping[str, Run], tell: Callable[[str], None]) -> dict[tuple[Any, ...], Pace]:
    """For each kind of run in the grid: from runs that are there (by the cell's name), else from a trial."""
    result: dict[tuple[Any, ...], Pace] = {}
    for cell in grid.cells:
        if kind(cell.config) not in result and (pace := _seen(found.get(cell.name))):
            result[kind(cell.config)] = pace
    for cell in grid.cells:
        if kind(cell.config) not in result:
            pace = trial(cell.config)
            result[kind(cell.config)] = pace
            tell(f"timed {cell.label}: {pace.round:.3g} s a round, {pace.evaluation:.3g} s an evaluation")
    return result


def existing(grid: Grid, out: Path, seeds: Sequence[int]) -> dict[tuple[str, int], Run]:
    """The grid's runs that have begun."""
    folders = {(cell.name, seed): grid.folder(out, cell, seed) for cell, seed in grid.runs(seeds)}
    return {key: read(folder) for key, folder in folders.items() if (folder / "config.yaml").exists()}


def _seen(run: Run | None) -> Pace | None:
    rows = run.metrics[1:] if run else ()  # the first round has to warm up
    evaluations = [row["seconds_eval"] for row in rows if row.get("seconds_eval")]
    if run is None or len(rows) < 5 or not evaluations:
        return None
    return Pace(0.0, _a_round(run.config, rows), statistics.median(evaluations))


def _a_round(config: Config, rows: Sequence[Mapping[str, Any]]) -> float:
    """Of the expected number of clients: a few rounds have, by chance, more or fewer."""
    updates = sum(row.get("client_updates") or 0 for row in rows)
    spent = float(sum(row["seconds"] for row in rows))
    return spent / updates * config.participation * config.clients if updates else spent / max(len(rows), 1)


class _Enough(Exception):
    """The trial has seen what it wanted to."""


class _Watch(Callback):
    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.rows: list[dict[str, Any]] = []
        self.start = 0.0

    def on_round(self, metrics: dict[str, Any]) -> None:
        now = time.perf_counter() - self.began
        self.rows.append(metrics)
        if len(self.rows) == 1:
            self.start = max(0.0, now - metrics["seconds"] - metrics.get("seconds_eval", 0.0))
        trained = any(row.get("client_updates") for row in self.rows[1:])
        if trained and "seconds_eval" in metrics and (now - self.start > _ENOUGH or len(self.rows) >= _MOST):
            raise _Enough


def trial(config: Config) -> Pace:
    """The run's own first rounds, in memory; nothing is left behind.  It is told of all rounds, so that executor = auto
    chooses what it will choose."""
    from ..simulation import simulate

    watch = _Watch()
    with contextlib.suppress(_Enough):
        simulate(config.replace(out=None, eval_every=2), callbacks=[watch])
    evaluations = [row["seconds_eval"] for row in watch.rows if "seconds_eval" in row]
    later = watch.rows[1:] if any(row.get("client_updates") for row in watch.rows[1:]) else watch.rows
    return Pace(watch.start, _a_round(config, later), statistics.median(evaluations) if evaluations else 0.0)


def choose(
    grid: Grid,
    plan: Plan,
    known: Mapping[tuple[Any, ...], Pace],
    done: Mapping[tuple[str, int], Run],
    budget: float | None,
    keep_seeds: bool,
) -> Plan:
    """The plan with its time; within the budget, if there is one.

    Fewer seeds come before fewer rounds, because a run that stops early says little about where it would have ended;
    seeds that the user named are kept.
    """

    def cost(seeds: Sequence[int], rounds: int | None) -> float:
        plan_ = Plan(tuple(seeds), rounds)
        total = 0.0
        for cell, seed in grid.runs(seeds):
            run = done.get((cell.name, seed))
            config = plan_.config(cell, seed)
            total += known[kind(cell.config)].of(config, config.rounds, run.rounds if run else 0)
        return _MARGIN * total

    whole = cost(plan.seeds, plan.rounds)
    if budget is None or whole <= budget:
        fits = None if budget is None else f"the whole grid fits into the budget: about {duration(whole)}"
        return replace(plan, seconds=whole, choice=fits)
    fewest = len(plan.seeds) if keep_seeds else 1
    for number in range(len(plan.seeds) - 1, fewest - 1, -1):
        if (total := cost(plan.seeds[:number], plan.rounds)) <= budget:
            text = f"{number} of {len(plan.seeds)} seeds fit into the budget, with all rounds: about {duration(total)}"
            return Plan(plan.seeds[:number], plan.rounds, total, text)
    seeds = plan.seeds[:fewest]
    most = min(grid.rounds, plan.rounds or grid.rounds)
    rounds = _most_rounds(lambda rounds: cost(seeds, rounds), most, budget)
    every = min(cell.config.eval_every for cell in grid.cells)
    rounds = rounds // every * every if rounds > every else rounds
    if rounds < 1:
        raise ConfigError(
            f"one round of the {len(grid.cells) * len(seeds)} runs takes about {duration(cost(seeds, 1))}, more than "
            f"the budget of {duration(budget)}; raise it, or choose runs with --only"
        )
    total = cost(seeds, rounds)
    text = (
        f"{rounds} of {most} rounds, with {len(seeds)} seed{'s' * (len(seeds) > 1)}, fit into the budget: about "
        f"{duration(total)}; all of them would take {duration(cost(seeds, plan.rounds))}. Numbers after fewer rounds "
        "are not comparable with the paper's (ASD learns more slowly at first): whole runs of a part of the grid, "
        "chosen with --only, say more"
    )
    return Plan(seeds, rounds, total, text)


def _most_rounds(cost: Callable[[int], float], most: int, budget: float) -> int:
    low, high = 0, most  # cost(low) fits, cost(high) may not
    while low < high:
        middle = math.ceil((low + high) / 2)
        low, high = (middle, high) if cost(middle) <= budget else (low, middle - 1)
    return low

"""Measures how long runs take: from the metrics of runs that exist, or by running a few rounds in memory."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..callbacks import Callback, Metrics
from ..config import Config
from ..simulation import simulate
from ..simulation.storage.recorded_run import RecordedRun
from ..simulation.time_estimate import RunTiming
from .grid import Grid

_TRIAL_SECONDS = 1.0  # a trial ends after this time, but not before its second round
_TRIAL_ROUNDS = 20  # or after this many rounds


def timing_key(config: Config) -> tuple[Any, ...]:
    """Runs with the same key take the same time."""
    c = config
    return (c.method, c.dataset, c.model, c.clients, c.participation, c.local_epochs, c.batch_size, c.augment,
            c.teacher, c.executor, c.threads, c.workers, c.clients_at_once, c.client_op, c.precision,
            str(c.model_args), str(c.eval_models))  # fmt: skip


def measure_grid(
    grid: Grid, existing: Mapping[str, RecordedRun], report: Callable[[str], None]
) -> dict[tuple[Any, ...], RunTiming]:
    """The timing of each kind of run in the grid: of existing runs (by the cell's name), else of a trial."""
    result: dict[tuple[Any, ...], RunTiming] = {}
    for cell in grid.cells:
        key = timing_key(cell.config)
        if key not in result and (timing := _recorded_timing(existing.get(cell.name))):
            result[key] = timing
    for cell in grid.cells:
        key = timing_key(cell.config)
        if key not in result:
            timing = result[key] = run_trial(cell.config)
            report(f"timed {cell.label}: {timing.round:.3g} s per round, {timing.evaluation:.3g} s per evaluation")
    return result


def run_trial(config: Config) -> RunTiming:
    """Runs the first rounds in memory and leaves nothing behind.

    The configuration keeps its full number of rounds, so that executor = auto decides as it will in the real run.
    """
    watch = _TrialWatch()
    with contextlib.suppress(_TrialDone):
        simulate(config.replace(out=None, eval_every=2), callbacks=[watch])
    evaluations = [row["seconds_eval"] for row in watch.rows if "seconds_eval" in row]
    later = watch.rows[1:] if any(row.get("client_updates") for row in watch.rows[1:]) else watch.rows
    return RunTiming(watch.start, _round_seconds(config, later), statistics.median(evaluations) if evaluations else 0.0)


class _TrialDone(Exception):
    """The trial has measured enough."""


class _TrialWatch(Callback):
    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.rows: list[Metrics] = []
        self.start = 0.0

    def on_round(self, metrics: Metrics) -> None:
        now = time.perf_counter() - self.began
        self.rows.append(metrics)
        if len(self.rows) == 1:
            self.start = max(0.0, now - metrics["seconds"] - metrics.get("seconds_eval", 0.0))
        trained = any(row.get("client_updates") for row in self.rows[1:])
        long_enough = now - self.start > _TRIAL_SECONDS or len(self.rows) >= _TRIAL_ROUNDS
        if trained and "seconds_eval" in metrics and long_enough:
            raise _TrialDone


def _recorded_timing(run: RecordedRun | None) -> RunTiming | None:
    rows = run.metrics[1:] if run else ()  # the first round includes warm-up
    evaluations = [row["seconds_eval"] for row in rows if row.get("seconds_eval")]
    if run is None or len(rows) < 5 or not evaluations:
        return None
    return RunTiming(0.0, _round_seconds(run.config, rows), statistics.median(evaluations))


def _round_seconds(config: Config, rows: Sequence[Mapping[str, Any]]) -> float:
    """Of a round with the expected number of clients: a few measured rounds may have more or fewer."""
    updates = sum(row.get("client_updates") or 0 for row in rows)
    spent = float(sum(row["seconds"] for row in rows))
    return spent / updates * config.participation * config.clients if updates else spent / max(len(rows), 1)

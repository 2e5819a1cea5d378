"""Time estimate of a run before it starts, from a measurement of seconds that leaves nothing behind."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from ..algorithms import Method
from ..common.durations import format_duration
from ..common.formatting import format_significant
from ..config import Config
from .context import Context
from .evaluation import batches, evaluate_batches
from .executors.autotune import expected_candidate
from .system.process_state import own_process_state
from .system.threads import threads

_EVALUATION_SECONDS = 0.3  # of timing, unless a single batch takes longer


@dataclass(frozen=True)
class RunTiming:
    """Seconds that one kind of run takes."""

    start: float
    round: float
    evaluation: float

    def seconds(self, config: Config, rounds: int, done: int = 0) -> float:
        """From round `done` to round `rounds`."""
        if done >= rounds:
            return 0.0
        return self.start + (rounds - done) * self.round + evaluations(config, rounds, done) * self.evaluation


def evaluations(config: Config, rounds: int, done: int = 0) -> int:
    """After rounds `done` to `rounds`: every so often, and after the last."""
    return rounds // config.eval_every - done // config.eval_every + (rounds % config.eval_every > 0)


@dataclass(frozen=True)
class TimeEstimate:
    timing: RunTiming
    executor: str  # `stacked, 32 clients at a time`

    def rows(self, config: Config) -> list[tuple[str, str]]:
        """Label and value of each line to print."""
        timing = self.timing
        rows = [("time: a round", f"{_seconds(timing.round)}, {self.executor}")]
        if config.eval_models:
            count = f"{evaluations(config, config.rounds):,} of them"
            rows.append(("time: an evaluation", f"{_seconds(timing.evaluation)}, {count}"))
        if timing.start:
            rows.append(("time: start of workers", format_duration(timing.start)))
        total = format_duration(timing.seconds(config, config.rounds))
        return [*rows, ("time in all", f"about {total} on this machine, as busy as it is now")]


def _seconds(value: float) -> str:
    return f"{format_significant(value, 2)} s" if value < 10 else format_duration(value)


def estimate_time(context: Context) -> TimeEstimate | None:
    """With the executor that the run would use; None if its first rounds have no client that can be trained."""
    with own_process_state():
        candidate = expected_candidate(context)
        if candidate is None:
            return None
        evaluation = _evaluation_seconds(context, candidate.parallelism.threads) / candidate.workers
        timing = RunTiming(candidate.start, candidate.seconds, evaluation)
        return TimeEstimate(timing, candidate.layout)


def evaluated_models(config: Config) -> int:
    """How many an evaluation looks at: without a `combine` of the method's own, `cloud` and `sel` are the same one."""
    same = {"cloud", "sel"} <= set(config.eval_models) and type(config.create_method()).combine is Method.combine
    return len(set(config.eval_models)) - same


def _evaluation_seconds(context: Context, number: int) -> float:
    """Of all models on the whole test split, from its first batch."""
    config, data, model = context.experiment.config, context.experiment.data, context.trainer.model
    best = math.inf
    with threads(number):
        evaluate_batches(model, context.initial, data, config.eval_batch_size, range(1))  # warm
        began = time.perf_counter()
        while time.perf_counter() - began < _EVALUATION_SECONDS:
            start = time.perf_counter()
            evaluate_batches(model, context.initial, data, config.eval_batch_size, range(1))
            best = min(best, time.perf_counter() - start)
    return best * batches(data, config.eval_batch_size) * evaluated_models(config)

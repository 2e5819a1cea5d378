"""Autotuning: what `executor = auto` stands for.

Some of the run's own clients are timed with each executor that may pay, and arithmetic says what a round would take.
Settings that are given are kept.  Executors differ in the last bits of their results: what was chosen is in the run's
config.yaml, and stays when the run is continued.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...algorithms.hooks import why_not_stacked
from ...common.formatting import plural
from ...common.schema import ConfigError
from ...config import Config
from .. import state
from ..client.stacked_model import clients_that_fit, why_not_stackable
from ..client.trainer import Trainer
from ..cohort import ClientTask, client_tasks, local_steps
from ..context import Context, Parallelism, worker_count
from ..distributed.worker_pool import check_that_workers_can_start, needs_main
from ..errors import SimulationError
from ..resource_estimate import estimate_resources, shortage
from ..storage.client_store import ClientStore
from ..system.shared_memory import SharedMemory
from ..system.threads import worth_threads
from .first_samples import FirstSamples
from .local import local_executor
from .processes import pickled_inputs, pickled_watchers

_log = logging.getLogger(__name__)
_TIMING_SECONDS = 0.4  # for one candidate, unless a single client takes longer
_SAMPLED_ROUNDS = 3  # that are looked at for the size of a cohort
_MESSAGE_SECONDS = 0.002  # that workers cost in a round
_WORKER_SLOWDOWN = 1.1  # workers slow each other down, and do not end at the same moment
_WORKER_START_SECONDS = 6.0
_MARGIN_FACTOR = 1.1  # a candidate must be this much faster than a simpler one


@dataclass(frozen=True)
class Candidate:
    executor: str
    workers: int
    parallelism: Parallelism
    seconds: float  # a round
    op: bool = False  # clients at once are trained by the whole-client op

    def __str__(self) -> str:
        """`2 workers, stacked, 16 clients at a time, about 0.02 s a round`."""
        return f"{self.layout}, about {self.seconds:.2g} s a round"

    @property
    def layout(self) -> str:
        at_once = self.parallelism.clients_at_once
        parts = [plural(self.workers, "worker")] if self.workers > 1 else []
        if at_once > 1:
            parts += ["whole-client op"] if self.op else ["stacked", f"{at_once} clients at a time"]
        else:
            parts.append("one client at a time")
        return ", ".join(parts)

    @property
    def with_threads(self) -> str:
        return f"{self}, {plural(self.parallelism.threads, 'thread')}"

    @property
    def start(self) -> float:
        """Seconds before the first round."""
        return _WORKER_START_SECONDS if self.executor == "processes" else 0.0

    def total(self, rounds: int) -> float:
        return rounds * self.seconds + self.start

    def config(self, config: Config) -> Config:
        at_once, threads = self.parallelism.clients_at_once, self.parallelism.threads
        if self.op and self.workers == 1:
            threads = config.threads  # the op takes all cores, unless told; the rest of a round is as fast on one
        return config.replace(executor=self.executor, clients_at_once=at_once, threads=threads)


def choose_executor(context: Context) -> tuple[Config, str]:
    """The configuration with the fastest executor for it, and what to tell the user about the choice."""
    config = context.experiment.config
    best = _fastest(context, _Stopwatch(context))
    if best is None:
        serial = Candidate("serial", 1, Parallelism(context.parallelism.threads, 1), 0.0)
        return serial.config(config), "one client at a time"
    reason = why_not_stackable(context.trainer.model.module) or why_not_stacked(context.experiment.method)
    return best.config(config), f"{best} ({reason}, so clients are not stacked)" if reason else str(best)


def expected_candidate(context: Context) -> Candidate | None:
    """What the run would use, as given or chosen, timed within seconds.  None: nobody is sampled, or fails."""
    config, given = context.experiment.config, context.parallelism
    stopwatch = _Stopwatch(context)
    try:
        stopwatch.shorten()
        if config.executor == "auto":
            return _fastest(context, stopwatch)
        if not stopwatch.cohort:
            return None
        seconds = stopwatch.round_seconds(stopwatch.cohort[: given.clients_at_once], given)
    except SimulationError:
        return None
    if config.executor == "processes":
        return _shared(context, stopwatch.cohort, context.workers, given.clients_at_once, given.threads, seconds)
    return Candidate(config.executor, 1, given, seconds, context.chain is not None)


def _fastest(context: Context, stopwatch: _Stopwatch) -> Candidate | None:
    config = context.experiment.config
    try:
        candidates = [c for c in _candidates(context, stopwatch) if _fits(context, c)]
    except SimulationError:  # it will be told when the run meets it
        return None
    if not candidates:
        return None
    best = candidates[0]
    for candidate in candidates[1:]:
        if _MARGIN_FACTOR * candidate.total(config.rounds) < best.total(config.rounds):
            best = candidate
    for candidate in candidates:
        _log.info("executor = auto: %s%s", candidate.with_threads, " (chosen)" if candidate is best else "")
    return best


def _candidates(context: Context, stopwatch: _Stopwatch) -> Iterator[Candidate]:
    """Simpler ones first."""
    config, cohort = context.experiment.config, stopwatch.cohort
    if not cohort:
        return
    threads, more_threads = config.threads or 1, context.parallelism.threads
    timed: list[tuple[int, float]] = []  # clients at once, seconds a round with one worker
    if config.clients_at_once <= 1:
        one = Parallelism(threads, 1)
        timed.append((1, stopwatch.round_seconds(cohort[:1], one)))
        yield Candidate("serial", 1, one, timed[-1][1])
        if more_threads > threads:
            one = Parallelism(more_threads, 1)
            yield Candidate("serial", 1, one, stopwatch.round_seconds(cohort[:1], one))
    stack = _stack_size(context)
    if stack > 1 and len(cohort) > 1:
        together = Parallelism(threads, stack)
        timed.append((stack, stopwatch.round_seconds(cohort[:stack], together)))
        yield Candidate("stacked", 1, together, timed[-1][1], context.chain is not None)
    # On a CPU the op uses all cores: workers would only add messages.
    if context.chain and stack > 1 and config.workers <= 1 and not context.initial.is_cuda:
        return
    workers = _workers(context, threads)
    for at_once, seconds in timed if workers > 1 else ():
        yield _shared(context, cohort, workers, at_once, threads, seconds)


def _shared(
    context: Context, cohort: Sequence[ClientTask], workers: int, at_once: int, threads: int, seconds: float
) -> Candidate:
    """Worker processes, where one process takes so many seconds for a round."""
    turns = math.ceil(len(cohort) / (at_once * workers))  # each worker takes as many groups, all of a size
    even = math.ceil(len(cohort) / (turns * workers)) if at_once > 1 else 1
    part = min(1.0, turns * even / len(cohort))
    expected = _WORKER_SLOWDOWN * seconds * part + _MESSAGE_SECONDS
    return Candidate("processes", workers, Parallelism(threads, even), expected, context.chain is not None)


def _fits(context: Context, candidate: Candidate) -> bool:
    """More workers take more memory than the run was found to have; the one process that was checked always fits."""
    return candidate.workers == 1 or shortage(estimate_resources(context, candidate.workers), context) is None


def _stack_size(context: Context) -> int:
    """Clients at once that are worth a try; on a CPU, large steps gain nothing and their groups take long to time."""
    config, model = context.experiment.config, context.trainer.model
    if config.clients_at_once:
        return config.clients_at_once
    if config.cuda_graph or why_not_stackable(model.module) or why_not_stacked(context.experiment.method):
        return 1
    if worth_threads(context.step_flops) and not model.vector.is_cuda:
        return 1
    return clients_that_fit(model, context.experiment.data, context.chain is not None)


def _workers(context: Context, threads: int) -> int:
    """As many as would be started, or 1 if they cannot be."""
    config = context.experiment.config
    if config.workers == 1:
        return 1
    try:
        check_that_workers_can_start()
        inputs = pickled_inputs(context.inputs, SharedMemory())
        watchers = pickled_watchers(context.watchers)
    except ConfigError:
        return 1
    if needs_main(inputs) or needs_main(watchers):  # which would run the user's script again, if it has no guard
        return 1
    return worker_count(config, context.initial.device, threads)


class _Stopwatch:
    """Trains clients as the first round would; what they keep goes to a store that is thrown away."""

    def __init__(self, context: Context) -> None:
        experiment = context.experiment
        assert isinstance(context.records, ClientStore)
        self._records = context.records.empty_copy(None)
        self._context = replace(context, records=self._records, watchers=())
        self._server = experiment.server(state.first(experiment.config, experiment.method, context.initial))
        rounds = [client_tasks(experiment, round) for round in range(_SAMPLED_ROUNDS)]
        largest = max(rounds, key=len)
        self.cohort = largest[np.argsort(-local_steps(experiment, largest), kind="stable")]  # longest first
        self._steps = float(np.mean([local_steps(experiment, tasks).sum() for tasks in rounds]))

    def shorten(self) -> None:
        """If a client takes long, some of its batches from now on, at least one: a step takes as long as any other."""
        if not self.cohort:
            return
        whole, cohort = self._context, self.cohort
        steps = int(local_steps(whole.experiment, cohort[:1])[0])
        self._limit(1)
        trial = local_executor(replace(self._context, parallelism=replace(whole.parallelism, clients_at_once=1)))
        for task in (self.cohort[-1], self.cohort[0]):  # the first, a small client, untimed
            start = time.perf_counter()
            trial.run(self._server, [task])
            seconds = time.perf_counter() - start
            self._records.rollback()
        self._context, self.cohort = whole, cohort
        if seconds * steps > _TIMING_SECONDS:
            self._limit(max(1, int(_TIMING_SECONDS / seconds)))

    def _limit(self, batches: int) -> None:
        """So many batches of each client, in one epoch."""
        whole = self._context.experiment
        few = replace(whole, data=FirstSamples(whole.data, batches * whole.config.batch_size))
        trainer = Trainer(few, self._context.trainer.model)
        self._context = replace(self._context, experiment=few, trainer=trainer)
        self.cohort = replace(self.cohort, epochs=np.ones_like(self.cohort.epochs))

    def round_seconds(self, group: Sequence[ClientTask], parallelism: Parallelism) -> float:
        """Seconds of a round, from those that this group takes."""
        # The group as a whole, which may be smaller than what fits at once.
        trial = replace(self._context, parallelism=replace(parallelism, clients_at_once=len(group)))
        executor, best = local_executor(trial), math.inf
        # Small clients first, untimed: the first steps load libraries and fill caches, for seconds on a busy machine.
        executor.run(self._server, self.cohort[-min(len(group), 2) :])
        self._records.rollback()
        began = time.perf_counter()
        while time.perf_counter() - began < _TIMING_SECONDS:
            start = time.perf_counter()
            executor.run(self._server, group)
            best = min(best, time.perf_counter() - start)
            self._records.rollback()
        return best / int(local_steps(self._context.experiment, group).sum()) * self._steps

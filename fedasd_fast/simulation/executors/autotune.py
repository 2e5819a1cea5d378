"""What `executor = auto` stands for: some of the run's own clients are timed in each way that may pay, and arithmetic
says what a round would take.  Settings that are given are kept.

The ways differ in the last bits of their results.  What was chosen is in the run's config.yaml, and stays when the run
is continued.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...common.schema import ConfigError
from .. import executors, state
from ..client.stacked_model import why_not
from ..cohort import Task, Workplace, tasks
from ..distributed.worker_pool import check_that_workers_can_start, needs_main
from ..errors import SimulationError
from ..round import server_of
from ..system.shared_memory import SharedFile
from ..system.threads import worth_threads
from .processes import pickled
from .stacked import as_many_as_fit

_PATIENCE = 0.4  # seconds for one way, unless a single client takes longer
_ROUNDS = 3  # that are looked at for the size of a cohort
_MESSAGES = 0.002  # seconds a round that workers cost
_SPREAD = 1.1  # workers slow each other down, and do not end at the same moment
_STARTING = 6.0  # seconds until workers are ready
_MARGIN = 1.1  # a way must be this much faster than a simpler one


@dataclass(frozen=True)
class Way:
    executor: str
    workers: int
    at_once: int
    threads: int
    seconds: float  # a round

    def __str__(self) -> str:
        parts = [f"executor = {self.executor}"]
        if self.workers > 1:
            parts.append(f"workers = {self.workers}")
        if self.at_once > 1:
            parts.append(f"clients_at_once = {self.at_once}")
        return ", ".join([*parts, f"threads = {self.threads}"])

    @property
    def short(self) -> str:
        kind = "stacked" if self.at_once > 1 else "one by one"
        return f"{kind}, {self.workers} x {self.threads} thread{'s' if self.threads > 1 else ''}: {self.seconds:.3g} s"

    def total(self, rounds: int) -> float:
        return rounds * self.seconds + (_STARTING if self.executor == "processes" else 0)


def resolve(place: Workplace) -> tuple[Workplace, str]:
    """The place with the fastest way to run it, and what to tell the user about the choice."""
    try:
        ways = list(_ways(place, _Stopwatch(place)))
    except SimulationError:  # it will be told when the run meets it
        ways = []
    if not ways:
        return chosen(place, Way("serial", 1, 1, place.threads, 0.0)), "executor = serial"
    best = ways[0]
    for way in ways[1:]:
        if _MARGIN * way.total(place.config.rounds) < best.total(place.config.rounds):
            best = way
    others = "; ".join(way.short for way in ways if way is not best)
    text = f"{best}: about {best.seconds:.3g} s a round" + (f" ({others})" if others else "")
    return chosen(place, best), text


def chosen(place: Workplace, way: Way) -> Workplace:
    config = place.config.replace(executor=way.executor, clients_at_once=way.at_once, threads=way.threads)
    return replace(place, config=config, at_once=way.at_once, threads=way.threads)


def _ways(place: Workplace, watch: _Stopwatch) -> Iterator[Way]:
    """Simpler ones first."""
    config, cohort = place.config, watch.cohort
    if not cohort:
        return
    alone = config.threads or 1
    found: list[tuple[int, float]] = []  # clients at once, seconds a round with one worker
    if config.clients_at_once <= 1:
        found.append((1, watch.round_of(cohort[:1], alone)))
        yield Way("serial", 1, 1, alone, found[-1][1])
        if place.threads > alone:
            yield Way("serial", 1, 1, place.threads, watch.round_of(cohort[:1], place.threads))
    group = _group(place)
    if group > 1 and len(cohort) > 1:
        found.append((group, watch.round_of(cohort[:group], alone)))
        yield Way("stacked", 1, group, alone, found[-1][1])
    workers = _workers(place)
    for at_once, seconds in found if workers > 1 else ():
        turns = math.ceil(len(cohort) / (at_once * workers))  # each worker takes as many groups, all of a size
        even = math.ceil(len(cohort) / (turns * workers)) if at_once > 1 else 1
        share = min(1.0, turns * even / len(cohort))
        yield Way("processes", workers, even, alone, _SPREAD * seconds * share + _MESSAGES)


def _group(place: Workplace) -> int:
    """Clients at once that are worth a try; on a CPU, large steps gain nothing and their groups take long to time."""
    config = place.config
    if config.clients_at_once:
        return config.clients_at_once
    if config.cuda_graph or why_not(place.trainer.model.module):
        return 1
    if worth_threads(place.step_flops) and not place.initial.is_cuda:
        return 1
    return as_many_as_fit(place.trainer.model, place.data)


def _workers(place: Workplace) -> int:
    """As many as would be started, or 1 if they cannot be."""
    if place.config.workers == 1:
        return 1
    try:
        check_that_workers_can_start()
        given = pickled(place, SharedFile())
    except ConfigError:
        return 1
    if needs_main(given):  # which would run the user's script again, if it has no guard
        return 1
    alone = replace(place, config=place.config.replace(executor="processes"), threads=place.config.threads or 1)
    return alone.workers


class _Stopwatch:
    """Trains clients as the first round would; what they keep goes to a store that is thrown away."""

    def __init__(self, place: Workplace) -> None:
        self._place = replace(place, store=place.store.like(None))
        self._server = server_of(place, state.first(place.config, place.method, place.initial))
        rounds = [tasks(place.config, place.data, place.method, r) for r in range(_ROUNDS)]
        largest = max(rounds, key=len)
        self.cohort = sorted(largest, key=place.expected_steps, reverse=True)
        self._steps = float(np.mean([sum(map(place.expected_steps, todo)) for todo in rounds]))

    def round_of(self, group: Sequence[Task], threads: int) -> float:
        """Seconds of a round, from those that this group takes."""
        place = replace(self._place, threads=threads, at_once=len(group))
        trainer, began, best = executors.local(place), time.perf_counter(), math.inf
        while time.perf_counter() - began < _PATIENCE:
            start = time.perf_counter()
            trainer.run(self._server, group)
            best = min(best, time.perf_counter() - start)
            place.store.rollback()
        return best / sum(map(place.expected_steps, group)) * self._steps

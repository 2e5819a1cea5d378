"""What a dry run says of the time is measured warm, with the executor that would be used, and within seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from torch import Tensor

from fedasd_fast.simulation import simulate
from fedasd_fast.simulation.cohort import ClientTask, client_tasks, local_steps
from fedasd_fast.simulation.context import Context, build_context
from fedasd_fast.simulation.executors import autotune
from fedasd_fast.simulation.executors.serial import SerialExecutor
from fedasd_fast.simulation.time_estimate import RunTiming, TimeEstimate, estimate_time, evaluated_models
from tests.simulation.small_runs import small_config


def test_it_is_about_what_the_rounds_take() -> None:
    config = small_config(executor="serial", rounds=30, clients=40, participation=0.5, sampling="fixed", local_epochs=8)
    estimate = estimate_time(build_context(config))
    assert estimate is not None
    rows = simulate(config).metrics[5:]
    measured = sorted(row["seconds"] for row in rows)[len(rows) // 2]
    assert measured / 5 < estimate.timing.round < 5 * measured  # the machine may have become busy in between
    assert estimate.timing.evaluation > 0
    assert estimate.executor == "one client at a time"


@pytest.mark.parametrize("method", ["fedavg", "fedinit", "fedexp", "fednova", "feddyn"])
def test_as_many_models_as_an_evaluation_looks_at(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    evaluate = SerialExecutor.evaluate

    def spy(self: SerialExecutor, vectors: Sequence[Tensor]) -> list[tuple[float, float]]:
        looked.append(len(vectors))
        return evaluate(self, vectors)

    monkeypatch.setattr(SerialExecutor, "evaluate", spy)
    # FedExP extrapolates only where clients disagree.
    config = small_config(method=method, method_args={"epsilon": 1e-9} if method == "fedexp" else {}, rounds=1)
    simulate(config.replace(participation=1.0, local_epochs=5))
    assert looked == [evaluated_models(config)]


def test_of_large_clients_single_batches_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    clock: list[float] = [0.0]
    trained: list[int] = []

    class Slow:
        """A second for each local step; ten more for the first, which is cold."""

        def __init__(self, context: Context) -> None:
            self.experiment = context.experiment

        def run(self, server: Any, group: Sequence[ClientTask]) -> None:
            steps = int(local_steps(self.experiment, group).sum())
            assert [len(self.experiment.data.client(task.client)) for task in group] == [4] * len(group)
            clock[0] += steps + (0.0 if trained else 10.0)
            trained.append(steps)

    monkeypatch.setattr(autotune, "local_executor", Slow)
    monkeypatch.setattr(autotune.time, "perf_counter", lambda: clock[0])
    settings: dict[str, Any] = {"clients": 40, "participation": 0.25, "sampling": "fixed", "local_epochs": 50}
    config = small_config(executor="serial", size_sigma=0.0, batch_size=4, **settings)
    whole = build_context(config)
    steps = int(local_steps(whole.experiment, client_tasks(whole.experiment, 0)).sum())
    found = autotune.expected_candidate(whole)
    assert found is not None
    assert steps > 1000
    assert found.seconds == pytest.approx(steps)  # a second each
    assert trained == [1, 1, 1, 1]


def test_small_clients_are_measured_whole() -> None:
    stopwatch = autotune._Stopwatch(build_context(small_config(executor="serial")))
    before = stopwatch.cohort
    stopwatch.shorten()
    assert stopwatch.cohort == before


def test_nobody_to_train_gives_no_estimate() -> None:
    config = small_config(executor="serial", failures={"dropout": 1 - 1e-9})
    assert estimate_time(build_context(config)) is None


def test_the_total_has_rounds_evaluations_and_the_start() -> None:
    config = small_config(rounds=100, eval_every=10)
    rows = dict(TimeEstimate(RunTiming(6.0, 0.5, 2.0), "2 workers").rows(config))
    assert rows["time: a round"] == "0.5 s, 2 workers"
    assert rows["time: an evaluation"] == "2 s, 10 of them"
    assert rows["time in all"].startswith("about 76 s on this machine")

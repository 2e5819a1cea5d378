"""executor = auto: chooses among real measurements, keeps what is given, and says what it does."""

from __future__ import annotations

import io
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedasd_fast.callbacks import Progress
from fedasd_fast.config import from_yaml
from fedasd_fast.simulation import SimulationError, resume, simulate
from fedasd_fast.simulation.cohort import ClientTask, local_steps
from fedasd_fast.simulation.context import Parallelism, build_context
from fedasd_fast.simulation.executors import autotune
from tests.simulation.small_runs import assert_same, contents, small_config


def resolved(monkeypatch: pytest.MonkeyPatch, one: float, many: float, cores: int = 4, **changes: Any) -> Any:
    """The configuration that is chosen where a round takes so many seconds one at a time and stacked, per worker."""

    def round_seconds(self: Any, group: Sequence[ClientTask], parallelism: Parallelism) -> float:
        return one / parallelism.threads**0.5 if len(group) == 1 else many

    monkeypatch.setattr(autotune._Stopwatch, "round_seconds", round_seconds)
    monkeypatch.setattr("fedasd_fast.simulation.context.cores", lambda: cores)
    settings = {"executor": "auto", "clients": 120, "participation": 0.4, "sampling": "fixed", "client_op": False}
    context = build_context(small_config(**(settings | changes)))
    config, text = autotune.choose_executor(context)
    assert description(config) in text
    return config


def description(config: Any) -> str:
    if config.clients_at_once > 1 and config.client_op:
        return "whole-client op"
    return f"stacked, {config.clients_at_once} clients" if config.clients_at_once > 1 else "one client at a time"


def test_nothing_is_timed_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    context = build_context(small_config(executor="auto", clients=120, participation=0.4, sampling="fixed"))
    stopwatch, clock, calls = autotune._Stopwatch(context), [0.0], []

    class Cold:
        """Its first call takes 100 s, the others 1 s."""

        def run(self, server: Any, group: Sequence[ClientTask]) -> None:
            calls.append(len(group))
            clock[0] += 100.0 if len(calls) == 1 else 1.0

    monkeypatch.setattr(autotune, "local_executor", lambda context: Cold())
    monkeypatch.setattr(autotune.time, "perf_counter", lambda: clock[0])
    group = stopwatch.cohort[:8]
    seconds = stopwatch.round_seconds(group, Parallelism(1, 8))
    steps = int(local_steps(context.experiment, group).sum())
    assert seconds == pytest.approx(stopwatch._steps / steps)
    assert calls == [2, 8]


def test_the_fastest_way(monkeypatch: pytest.MonkeyPatch) -> None:
    short = resolved(monkeypatch, one=0.1, many=0.02, rounds=5)  # too short for workers to pay
    assert (short.executor, short.clients_at_once, short.threads) == ("stacked", 32, 1)
    long = resolved(monkeypatch, one=10.0, many=2.0, rounds=1000)
    assert (long.executor, long.clients_at_once) == ("processes", 12)  # 48 clients: one group for each of 4 workers
    slow = resolved(monkeypatch, one=1.0, many=1.5, rounds=1000)
    assert (slow.executor, slow.clients_at_once, slow.threads) == ("processes", 1, 1)
    alike = resolved(monkeypatch, one=0.1, many=0.099, rounds=5)
    assert alike.executor == "serial"


def test_the_whole_client_op_needs_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It uses all cores itself, and takes the whole cohort in one call."""
    found = resolved(monkeypatch, one=10.0, many=2.0, rounds=1000, client_op=True)
    assert (found.executor, found.clients_at_once, found.threads) == ("stacked", 120, 0)
    asked = resolved(monkeypatch, one=10.0, many=2.0, rounds=1000, client_op=True, workers=2)
    assert (asked.executor, asked.clients_at_once) == ("processes", 24)


def test_large_steps_share_their_threads_or_their_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    large = {"model_args": {"hidden": [2000, 2000]}, "batch_size": 16}
    monkeypatch.setattr("torch.get_num_threads", lambda: 4)
    few = resolved(monkeypatch, one=1.0, many=0.0, rounds=2, **large)
    assert (few.executor, few.clients_at_once, few.threads) == ("serial", 1, 4)
    many = resolved(monkeypatch, one=1.0, many=0.0, rounds=500, **large)
    assert (many.executor, many.clients_at_once, many.threads) == ("processes", 1, 1)


def test_what_is_given_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    one = resolved(monkeypatch, one=1.0, many=0.1, rounds=1000, workers=1)
    assert one.executor == "stacked"
    alone = resolved(monkeypatch, one=1.0, many=0.1, rounds=1000, clients_at_once=1)
    assert (alone.executor, alone.clients_at_once) == ("processes", 1)
    four = resolved(monkeypatch, one=1.0, many=0.1, rounds=5, clients_at_once=4, threads=2)
    assert (four.executor, four.clients_at_once, four.threads) == ("stacked", 4, 2)


def test_a_real_choice_is_told_kept_and_continued(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = io.StringIO()
    settings = small_config(executor="auto", rounds=4, method="feddyn+asd", out=str(tmp_path / "run"))
    with caplog.at_level(logging.INFO):
        simulate(settings.replace(rounds=2), callbacks=[Progress(told)])
    found = from_yaml(tmp_path / "run" / "config.yaml")
    assert found.executor in ("serial", "stacked", "processes")
    first = told.getvalue().splitlines()[0]
    assert description(found) in first
    assert len(first) < 100  # one plain line
    assert caplog.text.count("(chosen)") == 1  # the rest is in the log
    assert caplog.text.count("executor = auto: ") > 1
    resume(tmp_path / "run", {"rounds": 4})
    simulate(found.replace(rounds=4, out=str(tmp_path / "whole")))
    assert_same(contents(tmp_path / "run"), contents(tmp_path / "whole"))


class Dropping(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(12, 5), nn.AlphaDropout(0.5))


def test_networks_and_clients_that_cannot_be_timed(caplog: pytest.LogCaptureFixture) -> None:
    random = simulate(small_config(executor="auto", rounds=1), model=Dropping())
    assert random.config.executor == "serial"
    failing = small_config(executor="auto", rounds=1, optimizer={"lr": 1e30, "clip_norm": None}, on_client_error="drop")
    with pytest.raises(SimulationError, match=r"all \d+ clients of round 1 failed"):
        simulate(failing)  # told by the run, not by the trial


def test_measuring_leaves_no_trace() -> None:
    context = build_context(small_config(executor="auto", method="feddyn"))
    before = context.initial.clone(), torch.get_rng_state()
    autotune.choose_executor(context)
    assert torch.equal(context.initial, before[0])
    assert torch.equal(torch.get_rng_state(), before[1])
    assert not context.records.snapshot()["clients"].numel()

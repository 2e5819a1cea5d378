"""SIGINT and SIGTERM: stop within a step, keep everything, say how to go on."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedasd_fast.callbacks import Callback
from fedasd_fast.simulation import Interrupted, Result, SimulationError, resume, simulate
from fedasd_fast.simulation.storage import checkpoint
from fedasd_fast.simulation.system.signals import StopRequests
from tests.simulation.small_runs import assert_same, contents, small, timeless

BOTH = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[Any]:
    """Handlers of the test's own, which must never be called while a run is on, and be back after it."""

    def not_caught(number: int, frame: Any) -> None:
        raise AssertionError(f"signal {number} was not caught by the run")

    before = {number: signal.signal(number, not_caught) for number in BOTH}
    yield not_caught
    assert [signal.getsignal(number) for number in BOTH] == [not_caught, not_caught]
    for number, handler in before.items():
        signal.signal(number, handler)


class Count:
    """The copy that a run makes of its model goes on counting here."""

    def __init__(self) -> None:
        self.steps = 0

    def __deepcopy__(self, memo: Any) -> Count:
        return self


class Signalling(nn.Module):
    """A linear model that sends signals to its own process in the given training steps."""

    def __init__(self, at: dict[int, int]) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.linear, self.at, self.count = nn.Linear(12, 5), at, Count()

    def forward(self, x: Tensor) -> Tensor:
        if self.training and torch.is_grad_enabled():
            self.count.steps += 1
            if self.count.steps in self.at:
                os.kill(os.getpid(), self.at[self.count.steps])
        return self.linear(x)


@pytest.mark.parametrize("number", BOTH)
@pytest.mark.parametrize("method", ["fedavg+asd", "feddyn+asd"])
def test_stops_within_a_step_and_loses_nothing(method: str, number: int, tmp_path: Path) -> None:
    with torch.random.fork_rng():
        whole = simulate(small(method=method, sampling="fixed"), model=Signalling({}))
        model = Signalling({33: number})
    with pytest.raises(Interrupted, match=rf"stopped after round 3, nothing lost; .* `fedasd resume {tmp_path}`"):
        simulate(small(method=method, sampling="fixed", out=str(tmp_path)), model=model)
    assert model.count.steps in (33, 34)
    assert [path.name[:13] for path in sorted((tmp_path / "checkpoint").iterdir())] == [
        "round-0000002",
        "round-0000003",
    ]
    result = resume(tmp_path, model=Signalling({}))
    assert timeless(result.metrics) == timeless(whole.metrics)
    assert all(torch.equal(result.models[name], whole.models[name]) for name in whole.models)


def test_second_signal_stops_at_once(tmp_path: Path) -> None:
    simulate(small(out=str(tmp_path / "whole")))

    class Impatient(Callback):
        def on_round(self, metrics: dict[str, Any]) -> None:
            if metrics["round"] == 3:
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGTERM)
                raise AssertionError("was not stopped")

    with pytest.raises(KeyboardInterrupt, match=rf"stopped at once; `fedasd resume {tmp_path / 'run'}`"):
        simulate(small(out=str(tmp_path / "run")), callbacks=[Impatient()])
    assert len(checkpoint.load(tmp_path / "run" / "checkpoint")) == 1  # that of round 2: nothing more was written
    resume(tmp_path / "run")
    assert_same(contents(tmp_path / "run"), contents(tmp_path / "whole"))


def test_signal_after_the_last_step_lets_the_run_end(tmp_path: Path) -> None:
    class Late(Callback):
        def on_round(self, metrics: dict[str, Any]) -> None:
            if metrics["round"] == 7:
                os.kill(os.getpid(), signal.SIGINT)

    result = simulate(small(out=str(tmp_path)), callbacks=[Late()])
    assert len(result.metrics) == 7


def test_full_disk_when_stopping_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise SimulationError("no space")

    class Stop(Callback):
        def on_round(self, metrics: dict[str, Any]) -> None:
            monkeypatch.setattr(checkpoint, "save", full)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match=r"stopped after round 1, but this could not be saved: no space; continue"):
        simulate(small(out=str(tmp_path)), callbacks=[Stop()])


def test_error_in_a_callback_keeps_the_round(tmp_path: Path) -> None:
    class Broken(Callback):
        def on_round(self, metrics: dict[str, Any]) -> None:
            if metrics["round"] == 3:
                raise ZeroDivisionError

    simulate(small(method="feddyn", out=str(tmp_path / "whole")))
    with pytest.raises(ZeroDivisionError):
        simulate(small(method="feddyn", out=str(tmp_path / "run")), callbacks=[Broken()])
    assert checkpoint.load(tmp_path / "run" / "checkpoint")[0]["state"]["round"] == 3
    resume(tmp_path / "run")
    assert_same(contents(tmp_path / "run"), contents(tmp_path / "whole"))


def test_outside_the_main_thread(tmp_path: Path) -> None:
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(simulate(small(out=str(tmp_path)))))
    thread.start()
    thread.join()
    assert len(results[0].metrics) == 7


def test_an_ignored_signal_stays_ignored() -> None:
    ours = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a job that a script started in the background
    stop = StopRequests()
    try:
        with stop:
            os.kill(os.getpid(), signal.SIGINT)
        assert not stop()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, ours)


def test_signals_are_left_alone_while_data_and_model_are_made(
    handlers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading data can take minutes and has no steps: the usual handlers must be in force."""
    seen = []

    def federate(config: Any) -> Any:
        seen.append([signal.getsignal(number) for number in BOTH])
        raise ValueError("enough")

    monkeypatch.setattr("fedasd_fast.simulation.context.federate", federate)
    with pytest.raises(ValueError, match="enough"):
        simulate(small(out=str(tmp_path)))
    assert seen == [[handlers, handlers]]

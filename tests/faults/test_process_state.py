"""Results depend on the configuration alone: neither on other threads nor on what the caller set in torch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedasd_fast.analysis.loaded_run import load_run
from fedasd_fast.callbacks import Callback
from fedasd_fast.simulation import Result, SimulationError, replay, resume, simulate
from fedasd_fast.simulation.sampling import participants
from tests.simulation.small_runs import small_config, without_times

REFUSED = "another thread of this process is running a simulation; .*: run one after the other, or each in a process"


class Pause(Callback):
    """Holds the run in its first round until it may go on."""

    def __init__(self) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()

    def on_round(self, row: dict[str, Any]) -> None:
        self.reached.set()
        assert self.go_on.wait(60)


def test_a_second_thread_is_refused(tmp_path: Path) -> None:
    expected = simulate(small_config(out=str(tmp_path / "before"), rounds=3))
    pause, found = Pause(), []
    thread = threading.Thread(target=lambda: found.append(simulate(small_config(rounds=3), callbacks=[pause])))
    thread.start()
    try:
        assert pause.reached.wait(60)
        refused: list[Callable[[], Any]] = [
            lambda: simulate(small_config(out=str(tmp_path / "second"))),
            lambda: resume(tmp_path / "before"),
            lambda: replay(tmp_path / "before", 1, 0),
            lambda: load_run(tmp_path / "before"),
        ]
        for call in refused:
            with pytest.raises(SimulationError, match=REFUSED):
                call()
    finally:
        pause.go_on.set()
        thread.join()
    assert not (tmp_path / "second").exists()
    assert_equal(found[0], expected)
    assert_equal(simulate(small_config(rounds=3)), expected)  # free again


def test_free_again_after_an_error() -> None:
    with pytest.raises(ValueError, match="executor = torchrun"):
        simulate(small_config(executor="torchrun"))
    thread_result: list[Result] = []
    thread = threading.Thread(target=lambda: thread_result.append(simulate(small_config(rounds=1))))
    thread.start()
    thread.join()
    assert len(thread_result) == 1


def test_a_callback_may_simulate() -> None:
    inner: list[Result] = []

    class Nested(Callback):
        def on_round(self, row: dict[str, Any]) -> None:
            inner.append(simulate(small_config(rounds=2)))

    outer = simulate(small_config(rounds=2), callbacks=[Nested()])
    for result in inner:
        assert_equal(result, outer)


class Settings(AbstractContextManager[None]):
    """What a caller may have set; put back at the end of the test."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        if self._name == "default dtype":
            torch.set_default_dtype(torch.float64)
        elif self._name == "default device":
            torch.set_default_device("meta")
        elif self._name == "grad mode":
            torch.set_grad_enabled(False)

    def __exit__(self, *_: object) -> None:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
        torch.set_grad_enabled(True)


CALLERS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "float64 by default": lambda: Settings("default dtype"),
    "another device by default": lambda: Settings("default device"),
    "device context": lambda: torch.device("meta"),
    "no gradients": lambda: Settings("grad mode"),
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
}


def state() -> tuple[Any, ...]:
    return (
        torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"), torch.get_num_threads(),
        torch.get_rng_state().tolist() if torch.get_default_device().type == "cpu" else None,
    )  # fmt: skip


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("executor", ["serial", "stacked"])
def test_settings_of_the_caller(caller: str, executor: str, tmp_path: Path) -> None:
    config = small_config(method="feddyn+asd", executor=executor, rounds=4, teacher="recompute")
    expected = simulate(config)
    with CALLERS[caller]():
        before = state()
        assert_equal(simulate(config), expected)
        assert state() == before
        simulate(config.replace(rounds=3, out=str(tmp_path / "run")))
        assert_equal(resume(tmp_path / "run", {"rounds": 4}), expected)
        assert replay(tmp_path / "run", 2, int(participants(config, 1)[0])).error is None
        loaded = load_run(tmp_path / "run")
        assert torch.equal(loaded.model("cloud"), expected.models["cloud"])
        assert state() == before


@pytest.mark.parametrize("caller", [nullcontext, torch.no_grad, torch.inference_mode])
def test_own_model_made_under_them(caller: Callable[[], AbstractContextManager[Any]]) -> None:
    def model() -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(1)
            return nn.Linear(12, 5)

    expected = simulate(small_config(rounds=2), model=model())
    with caller():
        assert_equal(simulate(small_config(rounds=2), model=model()), expected)


def test_restored_after_an_error() -> None:
    class Stop(Callback):
        def on_round(self, row: dict[str, Any]) -> None:
            raise ZeroDivisionError

    with Settings("default dtype"), torch.no_grad():
        before = state()
        with pytest.raises(ZeroDivisionError):
            simulate(small_config(), callbacks=[Stop()])
        assert state() == before


def assert_equal(one: Result, other: Result) -> None:
    assert without_times(one.metrics) == without_times(other.metrics)
    assert one.models.keys() == other.models.keys()
    for name, vector in one.models.items():
        assert vector.dtype == torch.float32
        assert vector.numpy().tobytes() == other.models[name].numpy().tobytes()

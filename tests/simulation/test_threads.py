"""Small models are evaluated and analysed on one thread, however many the machine has; what is asked for is used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fedasd_fast.analysis import registry
from fedasd_fast.cli.main import main
from fedasd_fast.simulation import simulate
from fedasd_fast.simulation.executors import base
from tests.simulation.small_runs import small_config

LARGE = {"model_args": {"hidden": [3000, 3000]}, "batch_size": 16, "rounds": 1, "clients": 4, "local_epochs": 1}


@pytest.fixture(autouse=True)
def _three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of threads of every evaluation."""
    found: list[int] = []
    real = base.evaluate

    def evaluate(*arguments: Any) -> Any:
        found.append(torch.get_num_threads())
        return real(*arguments)

    monkeypatch.setattr(base, "evaluate", evaluate)
    return found


@pytest.mark.parametrize("executor", ["serial", "stacked"])
def test_a_small_model_is_evaluated_on_one_thread(executor: str, seen: list[int]) -> None:
    simulate(small_config(executor=executor, rounds=2))
    assert set(seen) == {1}
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize("executor", ["serial", "stacked"])
def test_the_threads_of_training_are_those_of_evaluation(executor: str, seen: list[int]) -> None:
    simulate(small_config(executor=executor, rounds=2, threads=2))
    assert set(seen) == {2}


def test_a_large_model_has_all_threads(seen: list[int]) -> None:
    simulate(small_config(executor="serial", **LARGE))
    assert set(seen) == {3}


@pytest.mark.parametrize(("words", "number"), [([], 1), (["threads=2"], 2)], ids=["small model", "given"])
def test_analyses_of_a_small_model(
    words: list[str], number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    simulate(small_config(rounds=2, out=str(out)))
    found: list[int] = []
    real = registry.analyse

    def analyse(*arguments: Any) -> Any:
        found.append(torch.get_num_threads())
        return real(*arguments)

    monkeypatch.setattr(registry, "analyse", analyse)
    assert main(["analyse", str(out), "--only", "drift,cost", "--quiet", *words]) == 0
    assert found == [number, number]
    assert torch.get_num_threads() == 3

"""Accuracy on the clients' own test data: by hand, with BatchNorm of their own, and on several ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedasd_fast.common.schema import ConfigError
from fedasd_fast.data import PartitionedData, from_arrays, from_clients
from fedasd_fast.simulation import resume, simulate
from fedasd_fast.simulation.storage.client_store import ClientStore
from tests.simulation import rank_processes as ranks
from tests.simulation.small_runs import small_config, without_times

RANDOM = np.random.default_rng(0)
Y = RANDOM.integers(3, size=120)
X = 2 * np.eye(3, 6)[Y] + RANDOM.standard_normal((120, 6))
SIZES = (10, 0, 15, 3)  # of the clients' tests: one has none


def clients() -> PartitionedData:
    ends = np.cumsum(SIZES)
    tests = [(X[end - n : end], Y[end - n : end]) for n, end in zip(SIZES, ends, strict=True)]
    return from_clients([(X[k::4], Y[k::4]) for k in range(4)], client_tests=tests)


def networks() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


SETTINGS: dict[str, Any] = {
    "clients": 0, "participation": 0.6, "rounds": 3, "client_test_accuracy": True, "norm_statistics": "average",
    "dtype": "float64", "executor": "serial", "checkpoint_every": 1, "optimizer": {"lr": 0.1},
}  # fmt: skip


def accuracies(models: list[nn.Module]) -> np.ndarray:
    found, data = [], clients()
    for k, model in enumerate(models):
        samples = data.client_test(k)
        assert samples is not None
        if len(samples):
            found.append(100 * float((model(samples.inputs).argmax(1) == samples.targets).double().mean()))
    return np.array(found)


def test_the_same_model_for_all() -> None:
    result = simulate(SETTINGS, data=clients(), model=networks())
    for name in result.models:
        expected, row = accuracies([result.module(name)] * 4), result.metrics[-1]
        found = [row[f"client_test_acc_{key}_{name}"] for key in ("mean", "worst_tenth", "std")]
        assert found == pytest.approx([expected.mean(), expected.min(), expected.std()])
        weights = np.array([n for n in SIZES if n])
        assert row[f"acc_{name}"] == pytest.approx(expected @ weights / weights.sum())


def test_each_client_with_its_own_norms(tmp_path: Path) -> None:
    settings = SETTINGS | {"norm_statistics": "local", "out": str(tmp_path / "run")}
    kept: dict[int, Any] = {}

    with pytest.MonkeyPatch.context() as patch:
        write = ClientStore.write

        def spy(self: ClientStore, client: int, vectors: Any) -> None:
            kept[client] = vectors["upload"].clone()
            write(self, client, vectors)

        patch.setattr(ClientStore, "write", spy)
        result = simulate(settings, data=clients(), model=networks())
    assert len(kept) > 1
    module, models = networks().double(), []
    order = [*module.parameters(), module[1].running_mean, module[1].running_var]
    names = ["0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias", "1.running_mean", "1.running_var"]
    initial = torch.cat([part.detach().flatten() for part in order])
    for k in range(4):
        state, parts = result.state_dict("cloud"), kept.get(k, initial).split([part.numel() for part in order])
        own = {name: part for name, part in zip(names, parts, strict=True) if name.startswith("1.")}
        model = networks().double()
        model.load_state_dict({**state, **own})
        models.append(model.eval())
    expected = accuracies(models)
    assert result.metrics[-1]["client_test_acc_mean_cloud"] == pytest.approx(expected.mean())
    again = resume(tmp_path / "run", {"rounds": 4}, data=clients(), model=networks())
    whole = simulate(settings | {"rounds": 4, "out": None}, data=clients(), model=networks())
    assert without_times(again.metrics) == without_times(whole.metrics)


def named() -> PartitionedData:
    return clients()


class Net(nn.Sequential):
    def __init__(self, hidden: object = None) -> None:
        super().__init__(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs gloo")
def test_ranks_and_workers_give_the_same_numbers(tmp_path: Path) -> None:
    common = {**SETTINGS, "norm_statistics": "local", "dataset": f"{__name__}:named", "model": f"{__name__}:Net"}
    common |= {"threads": 1, "out": str(tmp_path / "one")}
    config = small_config(**common)
    expected = without_times(simulate(config).metrics)
    workers = simulate(config.replace(executor="processes", workers=2, out=None))
    assert without_times(workers.metrics) == expected
    several = config.replace(executor="torchrun", out=str(tmp_path / "ranks"))
    assert ranks.together(2, ranks.run, several) == ["finished"] * 2
    again = resume(tmp_path / "ranks", {"executor": "serial"}, trust_code=True)
    assert without_times(again.metrics) == expected


def test_data_without_tests_of_clients_are_refused() -> None:
    data = from_arrays(X, Y, users=np.arange(120) % 4, test=(X, Y))
    with pytest.raises(ConfigError, match="no test samples of each client; give them as test_users"):
        simulate(SETTINGS, data=data, model=networks())

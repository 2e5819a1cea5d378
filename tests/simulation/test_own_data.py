"""Runs on the user's own data, through the public API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset, TensorDataset

import fedasd_fast as fa
from fedasd_fast.analysis.forgetting import forgetting
from fedasd_fast.analysis.loaded_run import load_run
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.simulation import SimulationError

SETTINGS: dict[str, Any] = dict(
    rounds=3, local_epochs=1, participation=0.5, executor="serial", threads=1, model_args={"hidden": [8]}
)


def arrays(seed: int = 0, count: int = 240) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    random = np.random.default_rng(seed)
    y = random.integers(3, size=count)
    return (3 * np.eye(3, 6)[y] + random.standard_normal((count, 6))).astype(np.float32), y


def users(count: int = 240) -> list[str]:
    return [f"user {k % 8}" for k in range(count)]


def test_settings_apply_to_arrays() -> None:
    data = fa.data.from_arrays(*arrays(), test=arrays(1))
    settings = dict(partition="shards_1", clients=6, participation=1.0, rounds=10)
    result = fa.simulate(SETTINGS | settings, data=data)
    assert result.metrics[-1]["client_updates"] == 6
    assert result.metrics[-1]["samples"] == 240
    assert result.metrics[-1]["acc_cloud"] > 80


def test_the_number_of_clients_is_that_of_the_data() -> None:
    data = fa.data.from_arrays(*arrays(), users=users())
    assert fa.simulate(SETTINGS, data=data).config.clients == 8
    config = fa.presets.load("quickstart", ["rounds=1", "executor=serial", "clients=0"])
    assert fa.simulate(config, data=data).config.clients == 8
    for clients in (7, 500):
        with pytest.raises(ConfigError, match=f"clients = {clients}, but the data has 8; set clients to that, or to 0"):
            fa.simulate(SETTINGS | {"clients": clients}, data=data)
    undivided = fa.data.from_arrays(*arrays())
    with pytest.raises(ConfigError, match=r"clients = 0, but own with partition = dirichlet_0.3 can be divided"):
        fa.simulate(SETTINGS | {"clients": 0}, data=undivided)


def test_lists_and_users_are_the_same_clients() -> None:
    (x, y), ids = arrays(), np.array(users())
    by_name = {user: (x[ids == user], y[ids == user]) for user in sorted(set(users()))}
    one = fa.simulate(SETTINGS, data=fa.data.from_arrays(x, y, users=ids, test=arrays(1)))
    other = fa.simulate(SETTINGS, data=fa.data.from_clients(by_name, test=arrays(1)))
    assert all(torch.equal(one.models[name], other.models[name]) for name in ("all", "sel", "cloud"))


def test_without_a_test_set_there_is_no_accuracy(tmp_path: Path) -> None:
    data = fa.data.from_arrays(*arrays(), users=users())
    out = tmp_path / "run"
    result = fa.simulate(SETTINGS | {"out": str(out)}, data=data)
    assert not [key for row in result.metrics for key in row if key.startswith(("acc_", "test_"))]
    assert "not evaluated" in (out / "summary.txt").read_text()
    assert (out / "report.html").exists()
    tested = fa.simulate(SETTINGS, data=fa.data.from_arrays(*arrays(), users=users(), test=arrays(1)))
    assert torch.equal(result.models["cloud"], tested.models["cloud"])
    with pytest.raises(SimulationError, match="own has no test set"):
        forgetting(load_run(out, data=data))


@pytest.mark.parametrize("executor", ["stacked", "processes"])
def test_executors_cope_without_a_test_set(executor: str) -> None:
    data = fa.data.from_clients([(x, y) for x, y in (arrays(seed, 20) for seed in range(6))])
    settings = SETTINGS | {"executor": executor, "workers": 2 if executor == "processes" else 0}
    result, serial = fa.simulate(settings, data=data), fa.simulate(SETTINGS, data=data)
    torch.testing.assert_close(result.models["cloud"], serial.models["cloud"])
    assert "acc_cloud" not in result.metrics[-1]


def test_resume_asks_for_the_same_arrays(tmp_path: Path) -> None:
    """Also where the configuration divides them: the clients follow from both."""
    out, data = tmp_path / "run", fa.data.from_arrays(*arrays(), test=arrays(1))
    settings = SETTINGS | {"clients": 6}
    whole = fa.simulate(settings | {"rounds": 5}, data=data)
    fa.simulate(settings | {"out": str(out)}, data=data, report=False)
    with pytest.raises(SimulationError, match=r"this is not the data .*: labels"):
        fa.resume(out, {"rounds": 5}, data=fa.data.from_arrays(*arrays(2), test=arrays(1)))
    resumed = fa.resume(out, {"rounds": 5}, data=data, report=False)
    assert torch.equal(resumed.models["cloud"], whole.models["cloud"])
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 5
    assert (
        json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])["acc_cloud"] == whole.metrics[-1]["acc_cloud"]
    )


TENSORS = TensorDataset(torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64))


@pytest.mark.parametrize(
    ("data", "function"),
    [
        (np.zeros((3, 2)), r"from_arrays\(x, y\)"),
        (torch.zeros(3, 2), r"from_arrays\(x, y\)"),
        (arrays(), r"from_arrays\(x, y\)"),
        ([arrays(), arrays()], r"from_clients\(\[\(x, y\), ...\]\)"),
        ({"a": arrays()}, r"from_clients\(\{name: \(x, y\)\}\)"),
        (TENSORS, r"from_torch\(dataset\)"),
        ([Subset(TENSORS, [0, 1])], r"from_torch\(subsets\)"),
        (DataLoader(TENSORS), r"from_torch\(loader.dataset\)"),
        ([], "what fa.data.from_arrays, from_clients, from_torch or from_huggingface returns"),
        ("cifar10", r"from_arrays"),
    ],
)
def test_other_types_name_the_function(data: Any, function: str) -> None:
    with pytest.raises(TypeError, match=f"expected FederatedData or a Dataset: pass .*{function}"):
        fa.simulate(SETTINGS, data=data)

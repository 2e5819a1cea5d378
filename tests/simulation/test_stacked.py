"""Stacked clients give what they give one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedasd_fast import Result, algorithms, resume, simulate
from fedasd_fast.data.synthetic import SyntheticData
from fedasd_fast.simulation import SimulationError
from fedasd_fast.simulation.executors import stacked
from fedasd_fast.simulation.stacked_model import StackedModel
from fedasd_fast.typed import ConfigError

METHODS = [name + asd for name in algorithms.names() for asd in ("", "+asd") if name != "fedavgm"]
RAGGED = dict(
    clients=20, participation=0.5, rounds=2, local_epochs=3, batch_size=7, size_sigma=0.7, dtype="float64",
    model_args={"hidden": [9]}, synthetic={"shape": [6], "classes": 5, "samples_per_client": 17, "test_samples": 40},
    failures={"stragglers": 0.4, "dropout": 0.1}, optimizer={"clip_norm": 1.0}, asd={"weight": 3.0},
)  # fmt: skip
IMAGES = RAGGED | dict(
    synthetic={"shape": [3, 12, 12], "classes": 4, "samples_per_client": 9, "test_samples": 8},
    model="cnn_cifar", model_args={}, clients=6, rounds=1, local_epochs=2, method="fedavg+asd",
)  # fmt: skip


def both(settings: dict[str, Any], **others: Any) -> tuple[Result, Result]:
    serial, stacked = (simulate(settings | {"executor": name}, **others) for name in ("serial", "stacked"))
    return serial, stacked


def assert_same(one: Result, other: Result, tolerance: float) -> None:
    for name in one.models:
        torch.testing.assert_close(other.models[name], one.models[name], rtol=0, atol=tolerance)
    for a, b in zip(one.metrics, other.metrics, strict=True):
        assert {k: a[k] for k in ("steps", "samples", "client_updates")} == {
            k: b[k] for k in ("steps", "samples", "client_updates")
        }
        assert a["loss"] == pytest.approx(b["loss"], abs=10 * tolerance)


@pytest.mark.parametrize("method", METHODS)
def test_every_method(method: str) -> None:
    one, other = both(RAGGED | {"method": method})
    assert_same(one, other, 1e-12)
    assert not torch.equal(one.models["cloud"], one.models["all"])


@pytest.mark.parametrize("method", ["fedavg", "fedspeed+asd"])
def test_in_single_precision(method: str) -> None:
    assert_same(*both(RAGGED | {"method": method, "dtype": "float32"}), 1e-5)


def test_momentum_and_no_clipping() -> None:
    optimizer = {"momentum": 0.8, "clip_norm": None, "lr": 0.05}
    assert_same(*both(RAGGED | {"method": "feddyn+asd", "optimizer": optimizer}), 1e-12)


def test_in_chunks_of_few_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks: list[int] = []
    original = StackedModel.__init__

    def counted(self: StackedModel, template: Any, clients: int) -> None:
        chunks.append(clients)
        original(self, template, clients)

    monkeypatch.setattr(StackedModel, "__init__", counted)
    monkeypatch.setattr(stacked, "_GROUP_BYTES", 40_000)
    assert_same(*both(RAGGED | {"method": "feddyn+asd"}), 1e-12)
    assert len(chunks) > 2
    assert max(chunks) < 8


@pytest.mark.parametrize(
    ("augment", "teacher"),
    [("none", "cache"), ("round", "cache"), ("epoch", "recompute"), ("epoch", "cache_approximate")],
)
def test_convolutions_and_augmentation(augment: str, teacher: str) -> None:
    """Networks that are no chain of linear layers go through vmap."""
    assert_same(*both(IMAGES | {"augment": augment, "teacher": teacher, "model": f"{__name__}:Small"}), 1e-12)


class Small(nn.Module):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 4, 5), nn.GroupNorm(2, 4)
        self.frozen = nn.Parameter(torch.ones(4, 1, 1), requires_grad=False)
        self.scale = nn.Parameter(torch.ones(()))
        self.linear = nn.Linear(4 * 8 * 8, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.convolution(x))) * self.frozen * self.scale
        return self.linear(x.flatten(1))


class Poisoned(SyntheticData):
    """Client 3 has a sample that is not a number."""

    def client(self, k: int) -> Any:
        samples = super().client(k)
        if k == 3:
            samples.inputs[0] = float("nan")
        return samples


def poisoned(settings: dict[str, Any]) -> Poisoned:
    from fedasd_fast.config import from_dict

    config = from_dict(settings)
    return Poisoned(config.synthetic, config.clients, config.partition, config.seed)


def test_a_client_that_fails_is_dropped_alone() -> None:
    settings = RAGGED | {"participation": 1.0, "on_client_error": "drop", "method": "fedavg+asd", "size_sigma": 0.0}
    settings |= {"failures": {}, "rounds": 1}
    one, other = both(settings, data=poisoned(settings))
    assert_same(one, other, 1e-12)
    assert list(one.metrics[0]["failed"]) == list(other.metrics[0]["failed"]) == ["3"]
    assert other.models["all"].isfinite().all()


class Picky(nn.Module):
    """Cannot be stacked, as it looks at values; and refuses a number that is none."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(6, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        if bool(x.isnan().any()):
            raise ArithmeticError("no number")
        return self.linear(x)


def test_an_exception_is_pinned_to_its_client() -> None:
    settings = RAGGED | {"participation": 1.0, "on_client_error": "drop", "method": "fedavg", "size_sigma": 0.0}
    settings |= {"failures": {}, "rounds": 1, "model": f"{__name__}:Picky", "model_args": {}}
    one, other = both(settings, data=poisoned(settings))
    assert "ArithmeticError: no number" in other.metrics[0]["failed"]["3"]
    assert list(other.metrics[0]["failed"]) == ["3"]
    assert_same(one, other, 1e-12)


def test_networks_that_draw_random_numbers_are_refused() -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5))
    with pytest.raises(ConfigError, match=r"layer 1 \(Dropout\).*executor = serial"):
        simulate(RAGGED | {"executor": "stacked"}, model=model)


def test_a_resumed_run_has_the_same_bits(tmp_path: Path) -> None:
    settings = RAGGED | {"method": "feddyn+asd", "executor": "stacked", "rounds": 4}
    whole = simulate(settings)
    simulate(settings | {"rounds": 2, "out": str(tmp_path)})
    rest = resume(tmp_path, {"rounds": 4})
    assert all(torch.equal(whole.models[name], rest.models[name]) for name in whole.models)
    with pytest.raises(SimulationError, match="clients_at_once = 1"):
        resume(tmp_path, {"rounds": 5, "clients_at_once": 1})


@pytest.mark.parametrize("method", ["fedavg+asd", "feddyn+asd"])
def test_groups_are_the_same_for_any_number_of_workers(method: str, tmp_path: Path) -> None:
    settings = RAGGED | {"method": method, "rounds": 3, "clients_at_once": 3}
    expected = simulate(settings | {"executor": "stacked", "threads": 1})
    for number in (1, 2):
        found = simulate(settings | {"executor": "processes", "workers": number})
        assert all(torch.equal(expected.models[name], found.models[name]) for name in expected.models)
    simulate(settings | {"executor": "processes", "rounds": 1, "out": str(tmp_path)})
    found = resume(tmp_path, {"rounds": 3, "executor": "stacked"})
    assert all(torch.equal(expected.models[name], found.models[name]) for name in expected.models)


def test_serial_trains_one_at_a_time() -> None:
    with pytest.raises(ConfigError, match="clients_at_once = 3, but executor = serial"):
        simulate(RAGGED | {"executor": "serial", "clients_at_once": 3})

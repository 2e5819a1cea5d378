"""Stacked clients give what they give one after the other."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedasd_fast import algorithms
from fedasd_fast.algorithms.hooks import why_not_stacked
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import from_dict
from fedasd_fast.data.federated import Samples
from fedasd_fast.data.synthetic import SyntheticData
from fedasd_fast.simulation import Result, SimulationError, resume, simulate
from fedasd_fast.simulation.client.flat_model import FlatModel
from fedasd_fast.simulation.client.linear_chain import LinearChain
from fedasd_fast.simulation.client.stacked_model import StackedModel, clients_that_fit
from fedasd_fast.simulation.cohort import ClientTask, group_tasks
from fedasd_fast.simulation.context import build_context
from fedasd_fast.simulation.executors import stacked
from fedasd_fast.simulation.executors.aggregator import Aggregator

STACKABLE = [name for name in algorithms.names() if why_not_stacked(algorithms.create(name, {})) is None]
METHODS = [name + asd for name in STACKABLE for asd in ("", "+asd")]
RAGGED = dict(
    clients=20, participation=0.5, rounds=2, local_epochs=3, batch_size=7, size_sigma=0.7, dtype="float64",
    model_args={"hidden": [9]}, synthetic={"shape": [6], "classes": 5, "samples_per_client": 17, "test_samples": 40},
    failures={"stragglers": 0.4, "dropout": 0.1}, optimizer={"clip_norm": 1.0}, asd={"weight": 3.0}, client_op=False,
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
        for name in ("loss", "client_distance"):
            assert a[name] == pytest.approx(b[name], abs=10 * tolerance)


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


def test_in_groups_of_few_clients() -> None:
    settings = RAGGED | {"method": "feddyn+asd"}
    few = simulate(settings | {"executor": "stacked", "clients_at_once": 3})
    assert_same(simulate(settings | {"executor": "serial"}), few, 1e-12)


@pytest.mark.parametrize("at_once", [1, 2, 7, 98, 1000])
def test_groups_are_a_function_of_the_tasks(at_once: int) -> None:
    context = build_context(from_dict(RAGGED | {"clients": 200}))
    tasks = [ClientTask(k, 1 + k % 3, 0.01) for k in range(3, 200, 2)]
    found = group_tasks(context.experiment, tasks, at_once)
    assert group_tasks(context.experiment, [], at_once) == []
    assert sorted(task.client for group in found for task in group) == [task.client for task in tasks]
    assert max(map(len, found)) <= at_once
    assert max(map(len, found)) - min(map(len, found)) <= 1  # and none of them is a rest
    if at_once > 1:
        assert found == group_tasks(context.experiment, tasks[::-1], at_once)
        largest = [int(context.experiment.data.sizes[task.client]) for group in found for task in group]
        assert largest == sorted(largest, reverse=True)


@pytest.mark.parametrize(("parameters", "most"), [(50, 32), (17_226, 30), (100_000, 5), (10**7, 2), (10**9, 1)])
def test_groups_fit_a_cache(parameters: int, most: int) -> None:
    vector = torch.empty(parameters, device="meta")
    model: Any = type("Model", (), {"vector": vector, "__len__": lambda self: parameters})()
    data: Any = SimpleNamespace(sizes=torch.arange(1, 8), input_shape=(6,), positions=None, num_classes=10)
    assert clients_that_fit(model, data) == most


@pytest.mark.parametrize("method", ["fedavg+asd", "feddyn"])
def test_added_at_once_or_one_by_one(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = RAGGED | {"method": method, "executor": "stacked", "participation": 0.8}
    at_once = simulate(settings)
    monkeypatch.setattr(stacked, "_all_usable", lambda *_: False)
    monkeypatch.delattr(Aggregator, "add_stacked")
    one_by_one = simulate(settings)
    assert all(torch.equal(at_once.models[name], one_by_one.models[name]) for name in at_once.models)
    for a, b in zip(at_once.metrics, one_by_one.metrics, strict=True):
        assert (a["loss"], a["client_distance"]) == pytest.approx((b["loss"], b["client_distance"]), rel=1e-12)


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


CHAINS = {
    "logistic": [nn.Linear(6, 5)],
    "flattened, two activations": [nn.Flatten(), nn.Linear(6, 7), nn.Tanh(), nn.ReLU(), nn.Linear(7, 5)],
    "without bias": [nn.Flatten(), nn.Linear(6, 1, bias=False), nn.GELU(), nn.Linear(1, 5, bias=False)],
    "activations at both ends": [nn.Flatten(), nn.ReLU(), nn.Linear(6, 9), nn.SiLU(), nn.Linear(9, 5), nn.ReLU()],
    "nested": [nn.Sequential(nn.Flatten(), nn.Linear(6, 4)), nn.Identity(), nn.Sequential(nn.ELU(), nn.Linear(4, 5))],
    "in place": [nn.Flatten(), nn.Linear(6, 4), nn.ReLU(inplace=True), nn.Linear(4, 5), nn.LeakyReLU(0.3)],
    "narrow": [nn.Flatten(), nn.Linear(6, 1), nn.Sigmoid(), nn.Linear(1, 1)],
}


class Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def frozen() -> nn.Linear:
    layer = nn.Linear(6, 6)
    layer.bias.requires_grad_(False)
    return layer


def tied() -> list[nn.Module]:
    one, other = nn.Linear(6, 6), nn.Linear(6, 6)
    other.weight = one.weight
    return [one, nn.Tanh(), other]


OTHERS = {
    "subclass": [nn.Flatten(), Doubled(6, 5)],
    "frozen": [nn.Flatten(), frozen(), nn.Linear(6, 5)],
    "layer of a shared weight": [nn.Flatten(), *tied()],
    "changes its input": [nn.Flatten(), nn.Linear(6, 5), nn.SiLU(inplace=True), nn.Linear(5, 5)],
    "inputs of two dimensions": [nn.Linear(3, 4), nn.Flatten(), nn.Linear(8, 5)],
    "another layer": [nn.Flatten(), nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 5)],
}


@pytest.mark.parametrize("name", [*CHAINS, *OTHERS])
@pytest.mark.parametrize(("clients", "batch"), [(1, 1), (3, 4)])
def test_gradients_are_autograds(name: str, clients: int, batch: int) -> None:
    layers = (CHAINS | OTHERS)[name]
    template = FlatModel(nn.Sequential(*layers), torch.float64)
    rng = torch.Generator().manual_seed(0)
    vectors, gradients = torch.randn(2, clients, len(template), dtype=torch.float64, generator=rng)
    network = StackedModel(template, vectors, gradients)._network
    assert isinstance(network, LinearChain) == (name in CHAINS)
    shape = (6,) if isinstance(layers[0], nn.Linear) and name in CHAINS else (2, 3)
    for _ in range(2):  # nothing is left of the first batch
        inputs = torch.randn(clients, batch, *shape, dtype=torch.float64, generator=rng)
        kept = inputs.clone()
        logits = network.forward(inputs)
        direction = torch.randn(logits.shape, dtype=torch.float64, generator=rng)
        network.backward(direction.clone())
        assert torch.equal(inputs, kept)
        for k in range(clients):
            template.vector.copy_(vectors[k])
            template.gradient.zero_()
            alone = template.module(inputs[k])
            alone.backward(direction[k])
            torch.testing.assert_close(logits[k], alone.detach(), rtol=0, atol=1e-13)
            torch.testing.assert_close(gradients[k], template.gradient, rtol=0, atol=1e-13)


class Poisoned(SyntheticData):
    """Client 3 has a sample that is not a number."""

    def client(self, k: int) -> Any:
        samples = super().client(k)
        if k == 3:
            samples.inputs[0] = float("nan")
        return samples


def poisoned(settings: dict[str, Any]) -> Poisoned:
    config = from_dict(settings)
    return Poisoned(config.synthetic, config.clients, config.partition, config.seed)


def test_a_client_that_fails_is_dropped_alone() -> None:
    settings = RAGGED | {"participation": 1.0, "on_client_error": "drop", "method": "fedavg+asd", "size_sigma": 0.0}
    settings |= {"failures": {}, "rounds": 1}
    one, other = both(settings, data=poisoned(settings))
    assert_same(one, other, 1e-12)
    assert list(one.metrics[0]["failed"]) == list(other.metrics[0]["failed"]) == ["3"]
    assert other.models["all"].isfinite().all()


class Exploding(SyntheticData):
    """Client 3 has a sample so large that its only step has a finite loss and leads nowhere."""

    def client(self, k: int) -> Any:
        samples = super().client(k)
        return Samples(samples.inputs * 1e9, samples.targets) if k == 3 else samples


def test_a_client_that_diverges_is_dropped_alone() -> None:
    settings = RAGGED | {"participation": 1.0, "on_client_error": "drop", "size_sigma": 0.0, "failures": {}}
    settings |= {"rounds": 1, "local_epochs": 1, "batch_size": 17, "optimizer": {"clip_norm": None}}
    config = from_dict(settings)
    data = Exploding(config.synthetic, config.clients, config.partition, config.seed)
    one, other = both(settings, data=data)
    assert "diverged" in other.metrics[0]["failed"]["3"]
    assert list(one.metrics[0]["failed"]) == list(other.metrics[0]["failed"]) == ["3"]
    assert_same(one, other, 1e-12)


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


def test_networks_that_cannot_be_stacked_are_refused() -> None:
    shared = nn.Linear(6, 6)
    for layers, reason in (
        ([nn.Linear(6, 5), nn.AlphaDropout(0.5)], r"layer 1 \(AlphaDropout\) draws.*executor = serial"),
        (
            [shared, nn.Tanh(), shared, nn.Linear(6, 5)],
            r"layers 0 and 2 are one and the same Linear.*executor = serial",
        ),
    ):
        with pytest.raises(ConfigError, match=reason):
            simulate(RAGGED | {"executor": "stacked"}, model=nn.Sequential(*layers))


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

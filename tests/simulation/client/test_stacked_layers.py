"""BatchNorm and dropout of stacked clients: what each client would get alone, whatever its group."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call

from fedasd_fast.common.schema import ConfigError
from fedasd_fast.simulation import simulate
from fedasd_fast.simulation.client.stacked_layers import StackedLayers
from fedasd_fast.simulation.executors.stacked import StackedExecutor
from tests.simulation.small_runs import bits, small_config

IMAGE = nn.Unflatten(1, (3, 2, 2))


@settings(max_examples=30, deadline=None)
@given(
    counts=st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any),
    spatial=st.sampled_from([(2,), (2, 3), (1, 2, 2)]),
    affine=st.booleans(),
    training=st.booleans(),
    seed=st.integers(0, 99),
)
def test_batch_norm_of_padded_clients(
    counts: list[int], spatial: tuple[int, ...], affine: bool, training: bool, seed: int
) -> None:
    """Values, gradients and running statistics are those of F.batch_norm on each client's own samples."""
    random, clients = torch.Generator().manual_seed(seed), len(counts)
    layer = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[len(spatial) - 1](3, affine=affine, momentum=0.3).double()
    layer.train(training)
    names = ["running_mean", "running_var", *(["weight", "bias"] if affine else [])]
    tensors = {name: torch.rand(clients, 3, generator=random, dtype=torch.float64) for name in names}
    alone = {name: rows.clone() for name, rows in tensors.items()}
    x = torch.randn(clients, max(counts), 3, *spatial, generator=random, dtype=torch.float64, requires_grad=True)
    up = torch.randn(x.shape, generator=random, dtype=torch.float64)
    layers = StackedLayers(layer)
    layers.counts = counts
    y = layers.forward(lambda own, inputs: functional_call(layer, own, (inputs,)), tensors, x)
    mask = torch.arange(max(counts)) < torch.tensor(counts).unsqueeze(1)
    (gradient,) = torch.autograd.grad((y * up * mask.view(clients, -1, *[1] * (x.dim() - 2))).sum(), x)
    for k, count in enumerate(counts):
        if not count:
            continue
        own = x[k, :count].detach().requires_grad_()
        weight, bias = (alone[name][k] if affine else None for name in ("weight", "bias"))
        mean, var = alone["running_mean"][k], alone["running_var"][k]
        expected = F.batch_norm(own, mean, var, weight, bias, training, 0.3, layer.eps)
        assert torch.allclose(y[k, :count], expected, atol=1e-10)
        (direction,) = torch.autograd.grad((expected * up[k, :count]).sum(), own)
        assert torch.allclose(gradient[k, :count], direction, atol=1e-9)
    for name, rows in tensors.items():  # also of clients without a batch, which keep theirs
        assert torch.allclose(rows, alone[name], atol=1e-12), name


class Dropping(nn.Sequential):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__(nn.Linear(12, 12), nn.Tanh(), IMAGE, layer, nn.Flatten(), nn.Linear(12, 5), nn.Dropout(0.1))


@pytest.mark.parametrize("layer", [nn.Dropout(0.4), nn.Dropout2d(0.4), nn.Dropout(1.0)], ids=str)
def test_dropout_draws_what_the_client_draws_alone(layer: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"size_sigma": 0.6, "failures": {"stragglers": 0.4}, "local_epochs": 3, "batch_size": 5, "rounds": 3}
    config = small_config(**more, dtype="float64", method="fedsam+asd", participation=0.8)
    torch.manual_seed(0)
    model = Dropping(layer)
    alone = simulate(config, model=model)
    assert not torch.equal(alone.models["cloud"], simulate(config, model=Dropping(nn.Identity())).models["cloud"])
    monkeypatch.setattr(StackedExecutor, "train_one", None)  # no error may lead to the serial way
    for at_once in (2, 5):
        stacked = simulate(config.replace(executor="stacked", clients_at_once=at_once), model=model)
        assert torch.allclose(alone.models["cloud"], stacked.models["cloud"], rtol=0, atol=1e-11)
        assert alone.metrics[-1]["loss"] == pytest.approx(stacked.metrics[-1]["loss"], rel=1e-10)


def test_stacked_dropout_has_the_same_bits_for_any_number_of_workers(tmp_path: Any) -> None:
    config = small_config(model_args={}, model=f"{__name__}:Net", rounds=2, threads=1, clients_at_once=3)
    expected = simulate(config.replace(executor="stacked"))
    for workers in (1, 2):
        found = simulate(config.replace(executor="processes", workers=workers))
        assert bits(found.models) == bits(expected.models)


class Net(Dropping):
    def __init__(self, hidden: object = None) -> None:
        super().__init__(nn.Dropout(0.4))


class Functional(nn.Module):
    """Draws without a layer of its own; with `mixed`, dropout sees something else than a batch."""

    def __init__(self, mixed: bool) -> None:
        super().__init__()
        self.layer, self.drop, self.mixed = nn.Linear(12, 5), nn.Dropout(0.3), mixed

    def forward(self, x: Tensor) -> Tensor:
        if self.mixed:
            return self.layer(self.drop(x.reshape(-1, 4)).reshape(x.shape))  # type: ignore[no-any-return]
        return self.layer(F.dropout(x, 0.3, self.training)) + torch.rand(1) * 0  # type: ignore[no-any-return]


@pytest.mark.parametrize("mixed", [False, True])
def test_other_draws_are_trained_one_by_one(mixed: bool, caplog: pytest.LogCaptureFixture) -> None:
    config, model = small_config(rounds=1), Functional(mixed)
    with caplog.at_level(logging.INFO):
        stacked = simulate(config.replace(executor="stacked", clients_at_once=3), model=model)
    assert "could not be trained, so one by one" in caplog.text
    assert bits(stacked.models) == bits(simulate(config, model=model).models)


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.layer = nn.MultiheadAttention(12, 2, dropout=0.1, batch_first=True), nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = x.unsqueeze(1)
        return self.layer(self.attention(x, x, x, need_weights=False)[0].squeeze(1))  # type: ignore[no-any-return]


def test_attention_with_dropout_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match=r"layer attention \(MultiheadAttention\) draws .*nn.Dropout.*executor = ser"):
        simulate(small_config(executor="stacked"), model=Attending())
    assert simulate(small_config(rounds=1, executor="auto", workers=1), model=Attending()).config.executor == "serial"

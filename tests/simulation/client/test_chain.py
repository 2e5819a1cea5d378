"""The whole-client op gives what clients give one after the other."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from torch import nn

from fedasd_fast import Result, algorithms, resume, simulate
from fedasd_fast.config import from_dict
from fedasd_fast.data.federated import Samples
from fedasd_fast.data.synthetic import SyntheticData
from fedasd_fast.kernels import loader
from fedasd_fast.simulation import SimulationError
from fedasd_fast.simulation.client.chain_layers import ChainLayers, chain_layers
from fedasd_fast.simulation.client.flat_model import FlatModel
from fedasd_fast.simulation.context import build_context
from fedasd_fast.simulation.errors import Interrupted

from .test_stacked import RAGGED, assert_same

pytestmark = pytest.mark.skipif(not loader.available, reason="needs the compiled extension")

# Their hooks are more than the op computes.
HOOKED = {"fedcm", "fedgkd", "fedgmt", "fedinit", "fedlc", "fedlesam", "fedrs", "fedsmoo", "fedsol", "moon"}
METHODS = [name + asd for name in algorithms.names() if name not in HOOKED for asd in ("", "+asd")]
CHAIN = RAGGED | {"client_op": True, "executor": "stacked"}


def both(settings: dict[str, Any], **others: Any) -> tuple[Result, Result]:
    assert build_context(from_dict(settings)).chain is not None or others
    return simulate(settings | {"executor": "serial"}, **others), simulate(settings, **others)


@pytest.mark.parametrize("method", METHODS)
def test_every_method(method: str) -> None:
    assert_same(*both(CHAIN | {"method": method}), 1e-10)


@pytest.mark.parametrize("method", ["fedavg", "fedavg+asd", "scaffold", "fedspeed+asd"])
def test_in_single_precision(method: str) -> None:
    assert_same(*both(CHAIN | {"method": method, "dtype": "float32"}), 1e-5)


@pytest.mark.parametrize("weighting", ["adaptive", "uniform"])
@pytest.mark.parametrize("divergence", ["kl", "reverse_kl", "js"])
def test_every_divergence(divergence: str, weighting: str) -> None:
    asd = {"divergence": divergence, "weighting": weighting, "weight": 3.0, "temperature": 1.5}
    assert_same(*both(CHAIN | {"method": "fedntd+asd", "asd": asd}), 1e-10)


def test_momentum_and_no_clipping() -> None:
    optimizer = {"momentum": 0.8, "clip_norm": None, "lr": 0.05}
    assert_same(*both(CHAIN | {"method": "feddyn+asd", "optimizer": optimizer}), 1e-10)


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.Tanh(), nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.Identity()])
@pytest.mark.parametrize("bias", [True, False])
def test_every_activation(activation: nn.Module, bias: bool) -> None:
    layers = nn.Linear(6, 19, bias=bias), activation, nn.Linear(19, 7), nn.ReLU(), nn.Linear(7, 5, bias=bias)
    assert_same(*both(CHAIN | {"method": "fedsam+asd"}, model=nn.Sequential(*layers).double()), 1e-10)


def test_logistic_regression_on_images() -> None:
    images = {"shape": [3, 4, 4], "classes": 4, "samples_per_client": 9, "test_samples": 8}
    assert_same(*both(CHAIN | {"model": "logistic", "model_args": {}, "synthetic": images, "augment": "round"}), 1e-10)


@hypothesis.given(
    hidden=st.lists(st.integers(1, 40), max_size=3),
    inputs=st.integers(1, 40),
    classes=st.integers(2, 40),
    batch=st.integers(1, 40),
)
@hypothesis.settings(max_examples=25, deadline=None)
def test_every_width(hidden: list[int], inputs: int, classes: int, batch: int) -> None:
    """Widths below, at and above those of vectors and register tiles; batches of any size."""
    shape = {"shape": [inputs], "classes": classes, "samples_per_client": 17, "test_samples": 5}
    changes = {"model_args": {"hidden": hidden}, "synthetic": shape, "batch_size": batch, "rounds": 1, "clients": 6}
    assert_same(*both(CHAIN | changes | {"method": "fedavg+asd"}), 1e-10)


def test_bits_depend_on_no_other_client() -> None:
    settings = CHAIN | {"method": "feddyn+asd", "dtype": "float32"}
    expected = simulate(settings)
    for other in (
        {"clients_at_once": 2},
        {"clients_at_once": 3, "threads": 2},
        {"executor": "processes", "workers": 2, "clients_at_once": 4},
    ):
        assert all(
            torch.equal(simulate(settings | other).models[name], expected.models[name]) for name in expected.models
        )


@pytest.mark.parametrize("capability", ["avx2", "generic"])
def test_every_instruction_set(capability: str) -> None:
    before = loader.module.build_info()["cpu_capability"]
    if not loader.module.select_cpu_capability(capability):
        pytest.skip(f"this CPU has no {capability}")
    try:
        assert_same(*both(CHAIN | {"method": "fedspeed+asd"}), 1e-10)
    finally:
        loader.module.select_cpu_capability(before)


def test_resumed_run_has_the_same_bits(tmp_path: Path) -> None:
    settings = CHAIN | {"method": "scaffold+asd", "rounds": 4, "checkpoint_every": 1}
    whole = simulate(settings)
    simulate(settings | {"rounds": 2, "out": str(tmp_path / "run")})
    resumed = resume(tmp_path / "run", {"rounds": 4})
    assert all(torch.equal(resumed.models[name], whole.models[name]) for name in whole.models)


def test_a_loss_that_is_no_number_names_client_and_step() -> None:
    with pytest.raises(SimulationError, match=r"client \d+ .*step \d+.*loss is (nan|inf)"):
        simulate(CHAIN | {"optimizer": {"lr": 1e30, "clip_norm": None}, "dtype": "float32", "rounds": 3})


def test_a_client_that_fails_leaves_the_others_their_bits() -> None:
    """A label that is no class fails in the op; the client is then found, and the others have the bits of the op."""
    settings = CHAIN | {"on_client_error": "drop", "rounds": 1, "participation": 1.0, "failures": {}}

    class Spoilt(SyntheticData):
        def client(self, k: int) -> Samples:
            samples = super().client(k)
            return Samples(samples.inputs, samples.targets + 77) if k == 3 else samples

    data = build_context(from_dict(settings)).experiment.data
    data.__class__ = Spoilt
    few, many = (simulate(settings | {"clients_at_once": n}, data=data) for n in (2, 20))
    assert few.metrics[0]["client_updates"] == 19
    assert [int(k) for k in few.metrics[0]["failed"]] == [3]
    assert all(torch.equal(few.models[name], many.models[name]) for name in few.models)


def test_an_interrupt_does_not_wait_for_the_end_of_a_call(tmp_path: Path) -> None:
    """A cohort that would take minutes in one call."""
    settings = CHAIN | {
        "synthetic": {"shape": [200], "classes": 10, "samples_per_client": 2000, "test_samples": 10},
        "model_args": {"hidden": [400, 400]}, "clients": 2, "participation": 1.0, "local_epochs": 1000,
        "failures": {}, "size_sigma": 0.0, "out": str(tmp_path / "run"), "dtype": "float32",
    }  # fmt: skip
    sent: list[float] = []

    def interrupt() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(2.0, interrupt)
    timer.start()
    with pytest.raises(Interrupted, match="fedasd resume"):
        simulate(settings)
    assert sent
    assert time.monotonic() - sent[0] < 20  # seconds on a machine that is busy with much else


def layers_of(module: nn.Module, shape: tuple[int, ...] = (6,)) -> ChainLayers | str:
    return chain_layers(module, FlatModel(module).offsets(), shape)


def test_which_networks_are_chains() -> None:
    chain = layers_of(
        nn.Sequential(nn.Flatten(), nn.Linear(6, 3), nn.Tanh(), nn.Sequential(nn.Linear(3, 2, bias=False)))
    )
    assert isinstance(chain, ChainLayers)
    assert chain.numbers() == [6, 3, 0, 18, 2, 3, 2, 21, -1, 0]

    class Halved(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) / 2

    linear, frozen, hooked = nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6)), nn.Linear(6, 6)
    frozen[0].weight.requires_grad_(False)
    hooked.register_forward_hook(lambda *_: None)
    refused: list[tuple[nn.Module, tuple[int, ...], str]] = [
        (nn.Sequential(Halved(6, 2)), (6,), "Halved"),
        (nn.Sequential(nn.Linear(6, 2), nn.Dropout(0.1)), (6,), "Dropout"),
        (nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6)), (6,), "LayerNorm"),
        (nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Tanh()), (6,), "Tanh"),
        (nn.Sequential(nn.ReLU(), nn.Linear(6, 6)), (6,), "ReLU"),
        (nn.Sequential(linear, linear), (6,), "shared"),
        (frozen, (6,), "frozen"),
        (hooked, (6,), "hooks"),
        (nn.Linear(6, 2), (4, 6), "flattens"),
        (nn.Linear(6, 2), (5,), "fit"),
    ]
    for module, shape, reason in refused:
        found = layers_of(module, shape)
        assert isinstance(found, str), module
        assert reason in found, module


@pytest.mark.parametrize(
    "changes",
    [
        {"client_op": False},
        {"augment": "epoch", "synthetic": {"shape": [3, 4, 4]}},
        {"teacher": "recompute", "method": "fedavg+asd"},
        {"model": "cnn_cifar", "model_args": {}, "synthetic": {"shape": [3, 16, 16]}},
        {"precision": "bfloat16", "dtype": "float32"},
        {"precision": "float16", "dtype": "float32"},
        *({"method": method, "executor": "serial" if method == "moon" else "stacked"} for method in sorted(HOOKED)),
    ],
)
def test_everything_else_goes_the_other_way(changes: dict[str, Any]) -> None:
    assert build_context(from_dict(CHAIN | changes)).chain is None


def arguments(**changes: Any) -> list[Any]:
    """Of the op: two clients with 3 and 2 samples, a layer of 4 to 2 without bias."""
    values: dict[str, Any] = {
        "start": torch.zeros(8), "inputs": torch.ones(5, 4), "targets": torch.tensor([0, 1, 0, 1, 0]),
        "sizes": torch.tensor([3, 2]), "epochs": torch.tensor([1, 2]), "orders": torch.tensor([2, 0, 1, 0, 1, 1, 0]),
        "decays": torch.zeros(2, dtype=torch.float64), "linear": None, "layers": [4, 2, 0, -1, 0], "batch_size": 2,
        "steps": 2, "lr": 0.1, "quadratic": 0.0, "clip_norm": None, "momentum": 0.0, "rho": 0.0, "rho_epsilon": 0.0,
        "asd_weight": 0.0, "temperature": 2.0, "entropy_temperature": 1.0, "entropy_power": 1.0, "prior_power": 1.0,
        "weighting": "adaptive", "divergence": "kl", "not_true": False,
    }  # fmt: skip
    return list((values | changes).values())


def test_the_op_itself() -> None:
    ends, losses, norms, distances = loader.module.train_clients(*arguments())
    assert ends.shape == (2, 8)
    assert losses.shape == norms.shape == (2, 2)
    torch.testing.assert_close(distances, torch.linalg.vector_norm(ends.double(), dim=1))
    torch.testing.assert_close(losses[:, 0], torch.full((2,), 2.0).log())
    torch.library.opcheck(
        torch.ops.fedasd.train_clients.default, arguments(), test_utils=("test_schema", "test_faketensor")
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start": torch.zeros(8, dtype=torch.float16)}, "start has dtype"),
        ({"inputs": torch.ones(5, 4, dtype=torch.float64)}, "inputs has dtype"),
        ({"inputs": torch.ones(4, 5).T}, "contiguous"),
        ({"targets": torch.tensor([0, 1, 0, 1])}, "targets has length 4"),
        ({"targets": torch.tensor([0, 1, 0, 1, 2])}, "client 1 of the cohort.*= 2 is neither"),
        ({"sizes": torch.tensor([3, 3])}, r"sizes\[1\] = 3"),
        ({"sizes": torch.tensor([3, 1])}, "order of client 1"),
        ({"sizes": torch.tensor([3, -2])}, r"sizes\[1\] = -2"),
        ({"epochs": torch.tensor([1, 2**62])}, r"epochs\[1\]"),
        ({"epochs": torch.tensor([1, 1])}, "2 more than sizes times epochs"),
        ({"orders": torch.tensor([3, 0, 1, 0, 1, 1, 0])}, "order of client 0 has the number 3"),
        ({"orders": torch.tensor([-1, 0, 1, 0, 1, 1, 0])}, "the number -1"),
        ({"layers": [4, 2, 0, -1]}, "layers has 4 numbers"),
        ({"layers": [4, 2, 1, -1, 0]}, "does not lie in the 8"),
        ({"layers": [4, 2**62, 0, -1, 0]}, "does not lie in the 8"),
        ({"layers": [4, 2, 0, 7, 0]}, "does not lie in the 8"),
        ({"layers": [4, 2, 0, -1, 9]}, "activation 9"),
        ({"layers": [3, 2, 0, -1, 0]}, "takes 3 numbers"),
        ({"steps": 1}, "has 2 steps"),
        ({"batch_size": 0}, "batch_size = 0"),
        ({"lr": float("nan")}, "lr = nan"),
        ({"clip_norm": -1.0}, "clip_norm = -1"),
        ({"decays": torch.tensor([0.0, float("inf")], dtype=torch.float64)}, r"decays\[1\] = inf"),
        ({"linear": torch.zeros(2, 7)}, "linear has shape"),
        ({"temperature": 0.0}, "temperature"),
        ({"weighting": "wrong"}, "wrong"),
    ],
)
def test_the_op_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        loader.module.train_clients(*arguments(**changes))

"""The whole-client op on a GPU: values, determinism, launches, errors."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.cuda import launches
from fedasd_fast.config import from_dict
from fedasd_fast.kernels import loader
from fedasd_fast.simulation import simulate
from fedasd_fast.simulation.client.chain_trainer import shared_memory
from fedasd_fast.simulation.context import build_context
from tests.gpu.test_errors import ROOT
from tests.simulation import device_checks as on_device
from tests.simulation.client.test_chain import METHODS
from tests.simulation.device_checks import FEATURES

CHAIN = FEATURES | {"client_op": True, "executor": "stacked"}
# In, out and activation of each layer.
NETWORKS = {
    "W2": [(64, 128, 1), (128, 64, 1), (64, 10, 0)],
    "logistic": [(33, 7, 0)],
    "smooth": [(5, 31, 2), (31, 18, 3), (18, 9, 4), (9, 12, 5), (12, 100, 0)],
}
OPTIONS = {
    "fedavg": {"asd_weight": 0.0},
    "fedsam": {"asd_weight": 0.0, "rho": 0.1, "rho_epsilon": 1e-12},
    "kl": {},
    "momentum, no clip": {"momentum": 0.8, "clip_norm": None},
    "reverse_kl": {"divergence": "reverse_kl", "weighting": "uniform"},
    "js, not_true, fedspeed": {"divergence": "js", "not_true": True, "rho": 0.1, "rho_epsilon": 1e-12},
}


def cohort(network: str, dtype: torch.dtype, clients: int = 5, **options: Any) -> dict[str, Any]:
    """Arguments of the op, in its order: clients with 1 to 24 samples and 1 to 3 epochs."""
    random = torch.Generator().manual_seed(clients)
    layers, size = [], 0
    for inputs, outputs, activation in NETWORKS[network]:
        layers += [inputs, outputs, size, size + inputs * outputs, activation]
        size += (inputs + 1) * outputs
    sizes = torch.randint(1, 25, (clients,), generator=random)
    epochs = torch.randint(1, 4, (clients,), generator=random)
    counts = [n for n, e in zip(sizes.tolist(), epochs.tolist(), strict=True) for _ in range(e)]
    samples, width, classes = int(sizes.sum()), NETWORKS[network][0][0], NETWORKS[network][-1][1]
    return {
        "start": torch.randn(size, dtype=dtype, generator=random) * 0.2,
        "inputs": torch.randn(samples, width, dtype=dtype, generator=random),
        "targets": torch.randint(classes, (samples,), generator=random),
        "sizes": sizes,
        "epochs": epochs,
        "orders": torch.cat([torch.randperm(n, generator=random) for n in counts]),
        "decays": torch.rand(clients, dtype=torch.float64, generator=random) * 0.01,
        "linear": torch.randn(clients, size, dtype=dtype, generator=random) * 0.01,
        "layers": layers, "batch_size": 10, "steps": int((epochs * -(-sizes // 10)).max()), "lr": 0.1,
        "quadratic": 0.05, "clip_norm": 1.0, "momentum": 0.0, "rho": 0.0, "rho_epsilon": 0.0, "asd_weight": 3.0,
        "temperature": 2.0, "entropy_temperature": 1.0, "entropy_power": 1.0, "prior_power": 1.0,
        "weighting": "adaptive", "divergence": "kl", "not_true": False,
    } | options  # fmt: skip


def skip_unless_it_fits(arguments: dict[str, Any], device: torch.device) -> None:
    layers, batch, double = arguments["layers"], arguments["batch_size"], arguments["start"].dtype == torch.float64
    if reason := loader.module.why_not_trained_on_gpu(layers, batch, double, shared_memory(device)):
        pytest.skip(reason)


def train(arguments: dict[str, Any], device: Any) -> tuple[Tensor, ...]:
    there = [x.to(device) if isinstance(x, Tensor) else x for x in arguments.values()]
    results: tuple[Tensor, ...] = loader.module.train_clients(*there)
    return results


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("network", NETWORKS)
def test_as_on_the_cpu(network, options, dtype, device):
    arguments = cohort(network, dtype, **OPTIONS[options])
    skip_unless_it_fits(arguments, device)
    tolerance = 1e-10 if dtype == torch.float64 else 2e-5
    for there, here in zip(train(arguments, device), train(arguments, "cpu"), strict=True):
        torch.testing.assert_close(there.cpu(), here, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_as_serial(method, device):
    settings = CHAIN | {"method": method, "device": str(device)}
    assert build_context(from_dict(settings)).chain is not None
    on_device.assert_equal(simulate(settings), simulate(settings | {"executor": "serial"}), 1e-10)


def test_in_single_precision_as_serial(device):
    settings = CHAIN | {"method": "feddyn+asd", "device": str(device), "dtype": "float32"}
    on_device.assert_equal(simulate(settings), simulate(settings | {"executor": "serial"}), 1e-5)


@pytest.mark.parametrize("network", NETWORKS)
def test_bits_depend_on_the_client_alone(network, device):
    arguments = cohort(network, torch.float32, clients=300)
    skip_unless_it_fits(arguments, device)
    ends, losses, norms, distances = train(arguments, device)
    for _ in range(10):
        for again, first in zip(train(arguments, device), (ends, losses, norms, distances), strict=True):
            assert torch.equal(again, first)
    n, e = int(arguments["sizes"][0]), int(arguments["epochs"][0])
    lengths = {"inputs": n, "targets": n, "orders": n * e, "sizes": 1, "epochs": 1, "decays": 1, "linear": 1}
    alone = arguments | {name: arguments[name][:length] for name, length in lengths.items()}
    assert torch.equal(train(alone, device)[0][0], ends[0])


@pytest.mark.parametrize("options", OPTIONS)
def test_one_launch_and_no_wait(options, device):
    arguments = cohort("W2", torch.float32, clients=50, **OPTIONS[options])
    skip_unless_it_fits(arguments, device)
    arguments = {name: x.to(device) if isinstance(x, Tensor) else x for name, x in arguments.items()}
    work = launches(lambda: train(arguments, device))
    assert len(work) == 1, work
    assert "train_clients_kernel" in work[0][1]
    torch.cuda.set_sync_debug_mode("error")
    try:
        train(arguments, device)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_what_does_not_fit_goes_the_stacked_way(device):
    settings = CHAIN | {"model_args": {"hidden": [3000]}, "device": str(device)}
    context = build_context(from_dict(settings))
    assert context.chain is None
    assert "bytes of shared memory" in context.training
    on_device.assert_equal(simulate(settings), simulate(settings | {"executor": "serial"}), 1e-10)
    arguments = cohort("W2", torch.float64)
    with pytest.raises(RuntimeError, match="bytes of shared memory"):
        train(arguments | {"batch_size": 10**5}, device)


CHILD = """
import torch
from tests.gpu.test_chain import cohort, train
arguments = cohort("logistic", torch.float32)
train(arguments, "cuda")
torch.cuda.synchronize()
print("ready", flush=True)
{spoil}
train(arguments, "cuda")
torch.cuda.synchronize()
print("not refused", flush=True)
"""


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ("arguments['targets'][-1] = 7", "target_is_a_class"),
        ("arguments['orders'][0] = -1", "order_names_a_sample"),
        ("arguments['sizes'][-1] = 1000", "samples_and_orders_are_in_the_arrays"),
        ("arguments['steps'] = 1", "steps_fit"),
    ],
)
def test_bad_value_is_a_device_side_assert(spoil, message, device):
    done = subprocess.run(
        [sys.executable, "-c", CHILD.format(spoil=spoil)], capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    assert done.stdout.split() == ["ready"], done.stderr
    assert done.returncode != 0
    assert message in done.stderr

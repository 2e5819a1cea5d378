"""Whole runs on a GPU; what is checked is in tests/simulation/device_checks.py, which a fake GPU goes through too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fedasd_fast.simulation import simulate
from fedasd_fast.simulation.client import cuda_graph
from tests.simulation import device_checks as on_device
from tests.simulation.device_checks import FEATURES, IMAGES, METHODS, OneClient, images

MOMENTUM = {"optimizer": {"momentum": 0.8, "clip_norm": None, "lr": 0.05}}


@pytest.fixture(autouse=True)
def _the_same_algorithms_each_time() -> Iterator[None]:
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
        yield


@pytest.mark.parametrize("executor", ["serial", "stacked"])
@pytest.mark.parametrize("method", METHODS)
def test_as_on_the_cpu(method, executor, device):
    on_device.as_on_the_cpu(FEATURES | {"method": method, "executor": executor}, str(device), 1e-10)


@pytest.mark.parametrize("executor", ["serial", "stacked"])
def test_as_on_the_cpu_in_single_precision(executor, device):
    settings = FEATURES | {"dtype": "float32", "method": "feddyn+asd", "executor": executor, "eval_models": ["cloud"]}
    on_device.as_on_the_cpu(settings, str(device), 1e-4)


@pytest.mark.parametrize("executor", ["serial", "stacked"])
@pytest.mark.parametrize(("augment", "teacher"), [("none", "cache"), ("round", "cache"), ("epoch", "recompute")])
def test_images_as_on_the_cpu(augment, teacher, executor, device):
    settings = IMAGES | {"augment": augment, "teacher": teacher, "executor": executor, "method": "feddisco+asd"}
    on_device.as_on_the_cpu(settings, str(device), 1e-10, data=images())


@pytest.mark.parametrize("method", METHODS)
def test_stacked_as_serial(method, device):
    settings = FEATURES | {"method": method, "device": str(device)}
    on_device.assert_equal(simulate(settings | {"executor": "stacked"}), simulate(settings), 1e-10)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("executor", ["serial", "stacked"])
@pytest.mark.parametrize("method", METHODS)
def test_half_precision(method, executor, precision, device):
    settings = FEATURES | {"method": method, "executor": executor}
    on_device.half_close_to_float32(settings, str(device), precision)
    on_device.half_close_to_float32(
        IMAGES | {"method": method, "executor": executor}, str(device), precision, data=images()
    )


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("method", METHODS)
def test_half_precision_captured_as_eager(method, precision, device):
    half = {"method": method, "dtype": "float32", "precision": precision}
    on_device.captured_as_eager(FEATURES | MOMENTUM | half, str(device), 1e-3)
    on_device.captured_as_eager(IMAGES | half, str(device), 1e-3, data=images())


def test_tf32_is_another_precision(device):
    settings = IMAGES | {"method": "fedavg+asd", "dtype": "float32", "device": str(device)}
    results = [simulate(settings | {"tf32": allowed}, data=images()) for allowed in (True, False)]
    on_device.assert_equal(*results, 1e-2)
    if torch.cuda.get_device_capability(device) >= (8, 0):
        assert not torch.equal(*(result.models["cloud"] for result in results))


@pytest.mark.parametrize("method", METHODS)
def test_captured_as_eager(method, device):
    on_device.captured_as_eager(FEATURES | MOMENTUM | {"method": method}, str(device), 1e-10)
    on_device.captured_as_eager(IMAGES | {"method": method}, str(device), 1e-10, data=images())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_replay_has_the_bits_of_the_step_it_recorded(method, dtype, device, monkeypatch):
    """On the same memory: matrix products may go another way for another alignment."""
    for settings, data in ((FEATURES | MOMENTUM, None), (IMAGES, images())):
        settings = settings | {"method": method, "dtype": dtype, "device": str(device), "cuda_graph": True}
        with monkeypatch.context() as patch:
            patch.setattr(cuda_graph, "_GRAPHS", 0)
            plain = simulate(settings, data=data)
        on_device.assert_equal(simulate(settings, data=data), plain, 0)


def test_data_is_resident(device):
    on_device.data_is_resident(str(device))


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize(
    "settings",
    [FEATURES | MOMENTUM, FEATURES | {"method": "fedspeed+asd"}, IMAGES | {"method": "fedavg+asd"}],
    ids=["momentum", "fedspeed+asd", "images"],
)
def test_local_training_never_waits(settings, graph, device):
    data = images() if "augment" in settings else None
    train = OneClient(settings | {"device": str(device), "cuda_graph": graph}, data=data)
    train()
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert train() > 1
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "captured"])
def test_a_resumed_run_has_the_same_bits(graph, device, tmp_path: Path):
    on_device.resumed_as_whole(str(device), graph, tmp_path)


def test_networks_that_draw_random_numbers_are_replayed_with_the_client_s_own(device):
    model = torch.nn.Sequential(torch.nn.Linear(6, 30), torch.nn.Dropout(0.5), torch.nn.Linear(30, 5))
    settings = FEATURES | {"device": str(device), "cuda_graph": True}
    runs = [simulate(settings, model=model) for _ in range(2)]
    on_device.assert_equal(*runs, 0)
    assert not torch.equal(runs[0].models["cloud"], simulate(settings | {"seed": 1}, model=model).models["cloud"])

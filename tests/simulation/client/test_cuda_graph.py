"""Runs on a GPU as far as a CPU can tell: device of every tensor, waits of the host, recorded steps."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import from_dict
from fedasd_fast.data.device_data import DeviceData
from fedasd_fast.simulation import simulate
from fedasd_fast.simulation.client import cuda_graph
from fedasd_fast.simulation.executors.stacked import StackedExecutor
from tests.simulation import device_checks as on_device
from tests.simulation.device_checks import FEATURES, IMAGES, METHODS, OneClient, images
from tests.simulation.fake_gpu import CUDA, TapedGraphs, Watch, fake_gpu

MOMENTUM = {"optimizer": {"momentum": 0.8, "clip_norm": None, "lr": 0.05}}


@pytest.fixture
def gpu() -> Iterator[Watch]:
    with fake_gpu() as watch:
        yield watch


def test_the_fake_gpu_notices(gpu: Watch) -> None:
    there, here = torch.ones(3, device=CUDA), torch.ones(3)
    with pytest.raises(RuntimeError, match="one device"):
        there + here
    with pytest.raises(RuntimeError, match="one device"):
        there[torch.tensor([0, 1])]
    with pytest.raises(TypeError, match="numpy"):
        there.numpy()
    there.to(CUDA).add_(1)
    assert not gpu.waits
    for wait in (
        lambda: there.sum().item(), lambda: bool(there.any()), lambda: there[there > 0], there.cpu,
        lambda: here.to(CUDA), lambda: torch.tensor([1.0], device=CUDA), lambda: there.nonzero(),
        lambda: here.copy_(there),
    ):  # fmt: skip
        before = gpu.waits.total()
        wait()
        assert gpu.waits.total() == before + 1


@pytest.mark.parametrize("executor", ["serial", "stacked"])
@pytest.mark.parametrize(
    ("method", "kernels"), [("fedavg", True), ("feddyn+asd", True), ("scaffold", True), ("fedsam+asd", False)]
)
def test_no_tensor_is_on_the_wrong_device(
    method: str, executor: str, kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StackedExecutor, "train_one", None)  # an error must not lead to the serial way
    with fake_gpu(kernels=kernels):
        on_device.as_on_the_cpu(FEATURES | {"method": method, "executor": executor}, "cuda:0", 1e-12)


@pytest.mark.parametrize("executor", ["serial", "stacked"])
@pytest.mark.parametrize(("augment", "teacher"), [("none", "cache"), ("round", "cache"), ("epoch", "recompute")])
def test_images(executor: str, augment: str, teacher: str, gpu: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StackedExecutor, "train_one", None)
    settings = IMAGES | {"augment": augment, "teacher": teacher, "executor": executor, "method": "feddisco+asd"}
    on_device.as_on_the_cpu(settings, "cuda:0", 1e-12, data=images())


@pytest.mark.parametrize("way", ["eager", "captured", "reference"])
@pytest.mark.parametrize(
    "settings",
    [FEATURES | MOMENTUM, FEATURES | {"method": "fedspeed+asd"}, IMAGES | {"method": "fedavg+asd"}],
    ids=["momentum", "fedspeed+asd", "images"],
)
def test_local_training_never_waits(settings: dict[str, Any], way: str) -> None:
    data = images() if "augment" in settings else None
    with fake_gpu(kernels=way != "reference") as gpu:
        train = OneClient(settings | {"device": "cuda:0", "cuda_graph": way == "captured"}, data=data)
        train()  # constants go to the device the first time
        gpu.waits.clear()
        assert train() > 1
        assert not gpu.waits


def test_waits_of_stacked_clients_do_not_grow_with_their_steps(gpu: Watch) -> None:
    settings = FEATURES | {"device": "cuda:0", "executor": "stacked", "method": "feddyn+asd", "rounds": 1}
    simulate(settings)
    waits = gpu.waits.copy()
    gpu.waits.clear()
    simulate(settings | {"local_epochs": 4})
    assert gpu.waits == waits


def test_evaluation_waits_once_for_each_number(gpu: Watch) -> None:
    settings = FEATURES | {"device": "cuda:0", "rounds": 1}
    simulate(settings | {"eval_batch_size": 40})
    waits = gpu.waits.copy()
    gpu.waits.clear()
    simulate(settings | {"eval_batch_size": 4})
    assert gpu.waits == waits


@pytest.mark.parametrize("method", METHODS)
def test_recorded_steps_have_the_same_bits(method: str, gpu: Watch) -> None:
    on_device.captured_as_eager(FEATURES | {"method": method}, "cuda:0", 0)
    assert 1 < TapedGraphs.captures <= FEATURES["batch_size"]  # of each size of a batch, for all clients and rounds


def test_recorded_steps_with_momentum_and_without_clipping(gpu: Watch) -> None:
    on_device.captured_as_eager(FEATURES | MOMENTUM | {"method": "feddyn+asd"}, "cuda:0", 0)


def test_recorded_steps_on_images(gpu: Watch) -> None:
    on_device.captured_as_eager(IMAGES | {"method": "fedavg+asd"}, "cuda:0", 0, data=images())


def test_rare_sizes_of_batches_are_not_recorded(gpu: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graph, "_GRAPHS", 1)
    on_device.captured_as_eager(FEATURES | {"method": "fedsam+asd"}, "cuda:0", 0)
    assert TapedGraphs.captures == 1


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "captured"])
def test_a_resumed_run_has_the_same_bits(graph: bool, gpu: Watch, tmp_path: Path) -> None:
    on_device.resumed_as_whole("cuda:0", graph, tmp_path)


def test_data_is_resident(gpu: Watch) -> None:
    on_device.data_is_resident("cuda:0")


def test_data_that_does_not_fit_is_sent_client_by_client(caplog: pytest.LogCaptureFixture) -> None:
    host = images()
    room = 2 * host.test.nbytes  # half of it is for data
    with fake_gpu(free_memory=room), caplog.at_level(logging.WARNING):
        data = DeviceData(host, CUDA)
        assert data.test.inputs.device == CUDA
        assert data.client(2).inputs.device == data.client(2).targets.device == CUDA
        assert torch.equal(data.client(2).inputs.cpu(), host.client(2).inputs)
        on_device.as_on_the_cpu(IMAGES, "cuda:0", 1e-12, data=host)
    assert "the training data of noise (0.0 GB) stays on the host" in caplog.text
    assert "the test set" not in caplog.text


def test_cuda_graph_is_refused_where_it_cannot_be() -> None:
    with pytest.raises(ConfigError, match=r"cuda_graph = true with device = cpu: set device = cuda"):
        from_dict({"cuda_graph": True})
    with pytest.raises(ConfigError, match=r"stacked clients.*use executor = serial"):
        from_dict({"cuda_graph": True, "device": "cuda", "executor": "stacked"})
    with pytest.raises(ConfigError, match=r"clients_at_once = 1"):
        from_dict({"cuda_graph": True, "device": "cuda", "executor": "processes", "clients_at_once": 5})

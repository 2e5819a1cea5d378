"""What must hold on a GPU: run on real ones by tests/gpu, on a fake one by test_device.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedasd_fast.config import from_dict
from fedasd_fast.data.federated import Dataset, PartitionedData, Samples
from fedasd_fast.simulation import Result, resume, simulate
from fedasd_fast.simulation.client.update import load_client
from fedasd_fast.simulation.cohort import client_tasks
from fedasd_fast.simulation.context import Context, build_context
from fedasd_fast.simulation.inputs import Inputs
from fedasd_fast.simulation.state import first

# Clients of unequal sizes, so that the last batches have many.
FEATURES: dict[str, Any] = dict(
    clients=6, participation=0.5, rounds=2, local_epochs=2, batch_size=7, size_sigma=0.7, dtype="float64",
    model_args={"hidden": [9]}, synthetic={"shape": [6], "classes": 5, "samples_per_client": 12, "test_samples": 40},
    optimizer={"clip_norm": 1.0}, asd={"weight": 3.0}, executor="serial", client_op=False,
)  # fmt: skip
IMAGES = FEATURES | dict(
    model="tests.simulation.client.test_stacked:Small", model_args={}, batch_size=4, rounds=1, augment="epoch",
    teacher="recompute",
)  # fmt: skip
METHODS = ["fedavg", "fedprox+asd", "feddyn", "scaffold", "fedsam+asd"]


def images(clients: int = 6) -> PartitionedData:
    """Client k has k + 3 of 60 images, some of them more than one client's."""
    rng = np.random.default_rng(0)

    def samples(count: int) -> Samples:
        pixels = torch.from_numpy(rng.integers(0, 256, (count, 3, 12, 12), dtype=np.uint8))
        return Samples(pixels, torch.from_numpy(rng.integers(0, 5, count)))

    dataset = Dataset("noise", samples(60), samples(20), 5, (0.5, 0.4, 0.3), (0.2, 0.3, 0.25))
    return PartitionedData(dataset, [rng.permutation(60)[: k + 3] for k in range(clients)])


def assert_equal(one: Result, other: Result, tolerance: float) -> None:
    """Wherever they are; a tolerance of 0 means the same bits."""
    for name, model in one.models.items():
        torch.testing.assert_close(model.cpu(), other.models[name].cpu(), rtol=0, atol=tolerance)
    for a, b in zip(one.metrics, other.metrics, strict=True):
        numbers = {key: value for key, value in a.items() if not key.startswith("seconds")}
        assert numbers == pytest.approx({key: b[key] for key in numbers}, rel=0, abs=100 * tolerance)


def as_on_the_cpu(settings: dict[str, Any], device: str, tolerance: float, **others: Any) -> None:
    there = simulate(settings | {"device": device}, **others)
    assert there.models["cloud"].device.type == "cuda"
    assert_equal(there, simulate(settings, **others), tolerance)


def captured_as_eager(settings: dict[str, Any], device: str, tolerance: float, **others: Any) -> None:
    settings = settings | {"device": device}
    captured = simulate(settings | {"cuda_graph": True}, **others)
    assert_equal(captured, simulate(settings, **others), tolerance)


def half_close_to_float32(settings: dict[str, Any], device: str, precision: str, **others: Any) -> None:
    """Apart by no more than its rounding, and apart: it is computed in another precision."""
    settings = settings | {"device": device, "dtype": "float32"}
    start = simulate(settings | {"rounds": 0}, **others).models["cloud"]
    half, whole = (simulate(settings | {"precision": p}, **others).models["cloud"] for p in (precision, "float32"))
    error = torch.linalg.vector_norm(half - whole) / torch.linalg.vector_norm(whole - start)
    assert half.dtype == torch.float32
    assert 1e-7 < float(error) < (0.05 if precision == "bfloat16" else 0.01)


def resumed_as_whole(device: str, graph: bool, out: Path) -> None:
    settings = FEATURES | {"method": "feddyn+asd", "device": device, "cuda_graph": graph}
    whole = simulate(settings)
    simulate(settings | {"rounds": 1, "out": str(out)})
    assert_equal(resume(out, {"rounds": 2}), whole, 0)
    saved = torch.load(out / "models.pt", weights_only=True)  # by a machine without a GPU too
    assert {x.device.type for model in saved.values() for x in model.values()} == {"cpu"}


class OneClient:
    """The local training of the first client of the first round, again and again."""

    def __init__(self, settings: dict[str, Any], **others: Any) -> None:
        config = from_dict(settings)
        self.context: Context = build_context(config, Inputs(others.get("data")))
        experiment, initial = self.context.experiment, self.context.initial
        self._server = experiment.server(first(config, experiment.method, initial))
        self._task = client_tasks(experiment, 0)[0]
        self._client = load_client(experiment, self._task.client, None, initial)
        self._correction = experiment.method.correction(self._server, self._client)

    def __call__(self) -> int:
        """Returns the number of steps."""
        run = self.context.trainer.train(self._server, self._client, self._correction, self._task.epochs, [])
        return len(run.losses)


def data_is_resident(device: str) -> None:
    settings = IMAGES | {"device": device}
    data, host = OneClient(settings, data=images()).context.experiment.data, images()
    for k in range(host.num_clients):
        there, here = data.client(k), host.client(k)
        assert there.inputs.device == there.targets.device == torch.device(device)
        assert torch.equal(there.inputs.cpu(), here.inputs)
        assert torch.equal(there.targets.cpu(), here.targets)
        assert data.label_counts(k).device.type == "cpu"
        assert torch.equal(data.label_counts(k), host.label_counts(k))
        assert there.inputs.untyped_storage().data_ptr() == data.client(0).inputs.untyped_storage().data_ptr()
    assert data.test.inputs.device == torch.device(device)
    assert torch.equal(data.test.inputs.cpu(), host.test.inputs)
    assert torch.equal(data.sizes, host.sizes)

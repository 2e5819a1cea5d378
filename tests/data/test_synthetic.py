from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest
import torch

from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import Synthetic
from fedasd_fast.data import synthetic
from fedasd_fast.data.synthetic import SyntheticData


def make(clients=50, spec="dirichlet_0.3", seed=0, size_sigma=0.0, **settings):
    return SyntheticData(Synthetic(**settings), clients, spec, seed, size_sigma)


def test_samples_are_kept_while_there_is_room(monkeypatch):
    one = make(samples_per_client=20, shape=(64,))
    size = one.client(0).nbytes
    monkeypatch.setattr(synthetic, "_KEPT_BYTES", 2 * size)
    data = make(samples_per_client=20, shape=(64,))
    before = data.nbytes
    first = [data.client(k) for k in (4, 9, 2)]
    assert data.nbytes == before + 2 * size
    again = [data.client(k) for k in (4, 9, 2)]
    assert [a is b for a, b in zip(first, again, strict=True)] == [True, True, False]
    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("spec", ["dirichlet_0.1", "dirichlet_1e-6", "iid", "shards_2"])
@pytest.mark.parametrize("shape", [(64,), (3, 8, 8)])
def test_a_client_is_a_function_of_seed_and_number(spec, shape):
    data, again = make(spec=spec, shape=shape), make(clients=70, spec=spec, shape=shape)
    for k in (49, 0, 7):
        first, second = data.client(k), again.client(k)
        assert torch.equal(first.inputs, second.inputs)
        assert torch.equal(first.targets, second.targets)
        assert first.inputs.shape == (20, *shape)
        assert first.inputs.dtype == torch.float32
        assert torch.equal(data.label_counts(k), torch.bincount(first.targets, minlength=10))
    assert not torch.equal(data.client(0).inputs, data.client(1).inputs)
    assert not torch.equal(data.client(0).inputs, make(spec=spec, shape=shape, seed=1).client(0).inputs)
    assert data.is_image == (len(shape) == 3)
    assert (data.mean, data.std, data.input_shape, data.num_clients) == (None, None, shape, 50)


def test_the_test_set_has_every_class_equally_often():
    data = make(classes=4, test_samples=400)
    assert torch.bincount(data.test.targets).tolist() == [100] * 4


def test_noise_and_separation():
    """Without noise a class has as many points as modes, which all occur; the noise is around them."""
    data = make(classes=3, modes=4, noise=0.0, test_samples=600, shape=(500,))
    for label in range(3):
        points, times = data.test.inputs[data.test.targets == label].unique(dim=0, return_counts=True)
        assert len(points) == 4
        assert times.min() > 25  # of 200, 50 expected
    assert data.test.inputs.std().item() == pytest.approx(0.55, rel=0.03)
    noisy = make(separation=0.0, noise=0.7)
    assert noisy.client(3).inputs.std().item() == pytest.approx(0.7, rel=0.1)


@pytest.mark.parametrize("delta", [0.05, 0.5, 20.0])
def test_label_skew(delta):
    data = make(clients=600, spec=f"dirichlet_{delta}")
    shares = np.array([data.label_counts(k).numpy() for k in range(600)]) / 20
    expected = (1 + 19 * (delta + 1) / (10 * delta + 1)) / 20
    assert (shares**2).sum(axis=1).mean() == pytest.approx(expected, rel=0.05)
    assert shares.mean(axis=0) == pytest.approx([0.1] * 10, abs=0.05)


def test_shards_and_iid():
    held = [int((make(spec="shards_3", samples_per_client=100).label_counts(k) > 0).sum()) for k in range(20)]
    assert set(held) == {3}
    counts = sum(make(spec="iid", samples_per_client=100).label_counts(k) for k in range(50))
    assert counts.double().std().item() < 60


def test_log_normal_sizes():
    data = make(clients=500, size_sigma=0.8)
    assert len(data.client(3)) == int(data.sizes[3])
    assert data.sizes.min() >= 1
    assert 0.9 * 10_000 < data.sizes.sum() <= 10_000
    assert len(data.sizes.unique()) > 10


def test_a_million_clients_cost_next_to_nothing():
    tracemalloc.start()
    start = time.process_time()
    data = make(clients=1_000_000)
    assert time.process_time() - start < 0.5
    assert tracemalloc.get_traced_memory()[1] < 100e6
    tracemalloc.stop()
    assert len(data.client(999_999)) == 20
    assert data.nbytes < 20e6
    with pytest.raises(IndexError, match="client 1000000 of synthetic"):
        data.client(1_000_000)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"spec": "natural"}, r"have no users; use dirichlet_<delta>"),
        ({"spec": "shards_11"}, r"shards_11, but there are only 10 classes"),
        ({"spec": "even"}, "expected dirichlet_<delta>"),
        ({"size_sigma": -1.0}, "size_sigma = -1.0"),
    ],
)
def test_errors(changes, message):
    with pytest.raises(ConfigError, match=message):
        make(**changes)

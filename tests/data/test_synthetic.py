from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest
import torch

from fedasd_fast.common.schema import ConfigError
from fedasd_fast.data import synthetic
from fedasd_fast.data.synthetic import SyntheticData
from fedasd_fast.settings import Synthetic


def make(clients=50, spec="dirichlet_0.3", seed=0, size_sigma=0.0, version=2, **settings):
    return SyntheticData(Synthetic(**settings), clients, spec, seed, size_sigma, version)


versions = pytest.mark.parametrize("version", [1, 2])


def test_samples_are_kept_while_there_is_room(monkeypatch):
    one = make(samples_per_client=20, shape=(64,), version=1)
    size = one.client(0).nbytes
    monkeypatch.setattr(synthetic, "_KEPT_BYTES", 2 * size)
    data = make(samples_per_client=20, shape=(64,), version=1)
    before = data.nbytes
    first = [data.client(k) for k in (4, 9, 2)]
    assert data.nbytes == before + 2 * size
    again = [data.client(k) for k in (4, 9, 2)]
    assert [a is b for a, b in zip(first, again, strict=True)] == [True, True, False]
    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("spec", ["dirichlet_0.1", "dirichlet_1e-6", "iid", "shards_2"])
@pytest.mark.parametrize("shape", [(64,), (3, 8, 8)])
@versions
def test_a_client_is_a_function_of_seed_and_number(spec, shape, version):
    data, again = (make(clients=number, spec=spec, shape=shape, version=version) for number in (50, 70))
    for k in (49, 0, 7):
        first, second = data.client(k), again.client(k)
        assert torch.equal(first.inputs, second.inputs)
        assert torch.equal(first.targets, second.targets)
        assert first.inputs.shape == (20, *shape)
        assert first.inputs.dtype == torch.float32
        assert torch.equal(data.label_counts(k), torch.bincount(first.targets, minlength=10))
    assert not torch.equal(data.client(0).inputs, data.client(1).inputs)
    other = make(spec=spec, shape=shape, seed=1, version=version)
    assert not torch.equal(data.client(0).inputs, other.client(0).inputs)
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
@versions
def test_label_skew(delta, version):
    data = make(clients=600, spec=f"dirichlet_{delta}", version=version)
    shares = np.array([data.label_counts(k).numpy() for k in range(600)]) / 20
    expected = (1 + 19 * (delta + 1) / (10 * delta + 1)) / 20
    assert (shares**2).sum(axis=1).mean() == pytest.approx(expected, rel=0.05)
    assert shares.mean(axis=0) == pytest.approx([0.1] * 10, abs=0.05)


@versions
def test_shards_and_iid(version):
    shards, iid = (make(spec=spec, samples_per_client=100, version=version) for spec in ("shards_3", "iid"))
    assert {int((shards.label_counts(k) > 0).sum()) for k in range(20)} == {3}
    counts = sum(iid.label_counts(k) for k in range(50))
    assert counts.double().std().item() < 60


@versions
def test_cohorts_are_their_clients(version):
    data, clients = make(size_sigma=0.5, version=version), np.array([4, 0, 33])
    cohort = data.cohort(clients)
    assert torch.equal(cohort.inputs, torch.cat([data.client(int(k)).inputs for k in clients]))
    assert torch.equal(cohort.targets, torch.cat([data.client(int(k)).targets for k in clients]))
    assert torch.equal(data.cohort_label_counts(clients), torch.stack([data.label_counts(int(k)) for k in clients]))
    for wrong in (-1, 50):
        with pytest.raises(IndexError, match=f"client {wrong} of synthetic; expected 0 .. 49"):
            data.cohort(np.array([4, wrong]))


def test_version_1_is_as_it_was():
    """Pinned: runs of older versions are continued with these samples."""
    samples = make(version=1).client(3)
    assert samples.targets[:8].tolist() == [1, 1, 1, 1, 1, 1, 1, 7]
    assert samples.inputs[0, :3].tolist() == [-1.247861623764038, -0.28124579787254333, -2.4424564838409424]


@versions
def test_log_normal_sizes(version):
    data = make(clients=500, size_sigma=0.8, version=version)
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

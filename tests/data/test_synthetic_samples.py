"""Synthetic samples of a cohort in one call: the same bits compiled and in numpy, for any grouping."""

from __future__ import annotations

import numpy as np
import pytest

from fedasd_fast.data.synthetic_samples import SyntheticPopulation
from fedasd_fast.kernels import loader

DISTRIBUTIONS = [("iid", 0.0), ("shards", 2.0), ("shards", 7.0), ("dirichlet", 0.3), ("dirichlet", 50.0),
                 ("dirichlet", 1e-300)]  # fmt: skip


def population(distribution: str = "dirichlet", value: float = 0.3, width: int = 9, seed: int = 1, **other: float):
    centres = np.random.default_rng(0).standard_normal((7 * 3, width)).astype(np.float32)
    return SyntheticPopulation(seed, distribution, value, 7, 3, other.get("noise", 0.7), centres)


@pytest.mark.skipif(not loader.available, reason="needs the compiled extension")
@pytest.mark.parametrize(("distribution", "value"), DISTRIBUTIONS)
@pytest.mark.parametrize("width", [1, 4, 9, 64])
def test_compiled_samples_are_the_reference_samples(distribution, value, width, capability):
    made = population(distribution, value, width)
    clients, sizes = np.array([3, 0, 999_999, 2**31]), np.array([20, 1, 77, 0])
    compiled = made.samples(clients, sizes, implementation="fused")
    reference = made.samples(clients, sizes, implementation="reference")
    assert compiled[0].tobytes() == reference[0].tobytes()
    assert compiled[0].dtype == reference[0].dtype == np.float32
    assert compiled[1].tolist() == reference[1].tolist()
    for way in ("fused", "reference"):
        assert made.labels(clients, sizes, implementation=way).tolist() == compiled[1].tolist()


@pytest.mark.parametrize("way", ["auto", "reference"])
@pytest.mark.parametrize(("distribution", "value"), DISTRIBUTIONS)
def test_a_client_is_the_same_in_any_cohort(distribution, value, way):
    made, clients, sizes = population(distribution, value), np.array([5, 2, 40]), np.array([8, 30, 3])
    inputs, labels = made.samples(clients, sizes, implementation=way)
    for k, start in enumerate((0, 8, 38)):
        own, own_labels = made.samples(clients[k : k + 1], sizes[k : k + 1], implementation=way)
        assert own.tobytes() == inputs[start : start + sizes[k]].tobytes()
        assert own_labels.tolist() == labels[start : start + sizes[k]].tolist()
    other = population(distribution, value, seed=2).samples(clients, sizes, implementation=way)
    assert not (other[0] == inputs).any(axis=1).all()


@pytest.mark.parametrize("delta", [0.05, 0.5, 20.0])
def test_label_proportions_are_dirichlet(delta):
    """First and second moments: E p = 1 / C, E p^2 = (delta + 1) / (C (C delta + 1)); labels follow them."""
    clients, sizes = np.arange(3000), np.full(3000, 40)
    labels = population("dirichlet", delta).labels(clients, sizes).reshape(3000, 40)
    shares = np.stack([(labels == c).mean(axis=1) for c in range(7)], axis=1)
    assert shares.mean(axis=0) == pytest.approx([1 / 7] * 7, abs=0.03)
    second = (delta + 1) / (7 * (7 * delta + 1))
    expected = 1 / 7 / 40 + 39 / 40 * second
    assert (shares**2).mean() == pytest.approx(expected, rel=0.04)


def test_shards_have_their_number_of_classes_and_all_classes_are_taken():
    labels = population("shards", 3.0).labels(np.arange(500), np.full(500, 60)).reshape(500, 60)
    assert {len(set(row)) for row in labels.tolist()} == {3}
    counts = np.bincount(labels.ravel(), minlength=7) / labels.size
    assert counts == pytest.approx([1 / 7] * 7, abs=0.04)


def test_inputs_lie_around_the_centres_of_their_class():
    made = population("iid", 0.0, noise=0.0)
    inputs, labels = made.samples(np.arange(40), np.full(40, 50))
    centres = made.centres.reshape(7, 3, -1)
    which = (inputs[:, None] == centres[labels]).all(axis=2)
    assert (which.sum(axis=1) == 1).all()
    assert which.mean(axis=0) == pytest.approx([1 / 3] * 3, abs=0.05)
    noisy, same = population("iid", 0.0, noise=0.7).samples(np.arange(40), np.full(40, 50))
    assert (same == labels).all()
    assert (noisy - inputs).std() == pytest.approx(0.7, rel=0.03)


def test_pinned():
    """Changes only if every result of version 2 with synthetic data does."""
    inputs, labels = population().samples(np.array([7]), np.array([4]))
    assert labels.tolist() == [4, 5, 5, 4]
    assert inputs[:, 0].tolist() == [-2.0009028911590576, 1.0553394556045532, 1.6284987926483154, -0.8368131518363953]

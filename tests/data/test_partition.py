from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedasd_fast.common.schema import ConfigError
from fedasd_fast.data.partition import _dirichlet, _order_of_draws, client_sizes, log_dirichlet, partition


def rng(seed=0):
    return np.random.default_rng(seed)


def label_counts(labels, classes, parts):
    return np.array([np.bincount(labels[part], minlength=classes) for part in parts])


def one_by_one(labels, prior, size, rng):
    """The procedure as it is described: one sample at a time, redrawing full clients and empty classes."""
    pools = [list(rng.permutation(np.flatnonzero(labels == c))) for c in range(prior.shape[1])]
    parts = [[] for _ in prior]
    while any(len(part) < size for part in parts):
        k = rng.integers(len(prior))
        if len(parts[k]) == size:
            continue
        left = prior[k] * [len(pool) > 0 for pool in pools]
        c = rng.choice(len(left), p=left / left.sum())
        parts[k].append(pools[c].pop())
    return parts


@st.composite
def sets(draw):
    counts = draw(st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(lambda counts: sum(counts) > 0))
    labels = rng(draw(st.integers(0, 99))).permutation(np.repeat(np.arange(len(counts)), counts))
    clients = draw(st.integers(1, len(labels)))
    return labels, len(counts), clients


def check_split(parts, samples, clients):
    rows = np.concatenate(parts)
    assert len(parts) == clients
    assert len(np.unique(rows)) == len(rows)
    assert rows.min() >= 0
    assert rows.max() < samples
    assert all(len(part) > 0 for part in parts)


DELTAS = st.sampled_from(["1e-320", "1e-300", "1e-12", "1e-3", "0.1", ".3", "1", "50", "1e9", "1e300"])


@settings(max_examples=150, deadline=None)
@given(sets(), DELTAS.map("dirichlet_{}".format) | st.just("iid"), st.integers(0, 5))
def test_disjoint_with_exact_sizes(case, spec, seed):
    labels, classes, clients = case
    parts = partition(labels, classes, clients, spec, rng(seed))
    check_split(parts, len(labels), clients)
    assert {len(part) for part in parts} == {len(labels) // clients}
    again = partition(labels, classes, clients, spec, rng(seed))
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


@settings(max_examples=60, deadline=None)
@given(sets(), st.sampled_from(["iid", "dirichlet_0.1"]), st.sampled_from([1e-6, 0.3, 2.0, 1e4]), st.integers(0, 5))
def test_log_normal_sizes(case, spec, sigma, seed):
    labels, classes, clients = case
    check_split(partition(labels, classes, clients, spec, rng(seed), size_sigma=sigma), len(labels), clients)


def test_log_normal_sizes_have_their_spread():
    sizes = client_sizes(1_000_000, 2000, 0.5, rng())
    assert 0.998 < sizes.sum() / 1_000_000 <= 1
    assert np.log(sizes).std() == pytest.approx(0.5, rel=0.05)


@settings(max_examples=50, deadline=None)
@given(sets(), st.integers(1, 4), st.integers(0, 5))
def test_shards(case, each, seed):
    labels, classes, clients = case
    length = len(labels) // (clients * each)
    if length == 0:
        with pytest.raises(ConfigError, match="fewer shards"):
            partition(labels, classes, clients, f"shards_{each}", rng(seed))
        return
    parts = partition(labels, classes, clients, f"shards_{each}", rng(seed))
    check_split(parts, len(labels), clients)
    assert {len(part) for part in parts} == {each * length}


def test_shards_hold_few_classes():
    labels = rng(1).permutation(np.repeat(np.arange(10), 100))
    counts = label_counts(labels, 10, partition(labels, 10, 50, "shards_2", rng()))
    assert (counts > 0).sum(axis=1).max() == 2
    assert np.array_equal(counts.sum(axis=0), np.full(10, 100))
    other = label_counts(labels, 10, partition(labels, 10, 50, "shards_2", rng(1)))
    assert not np.array_equal(counts, other)


def test_iid_is_class_balanced_where_it_can_be():
    labels = rng(1).permutation(np.repeat(np.arange(5), [20, 40, 60, 20, 80]))
    counts = label_counts(labels, 5, partition(labels, 5, 20, "iid", rng()))
    assert np.array_equal(counts, np.tile([1, 2, 3, 1, 4], (20, 1)))
    counts = label_counts(labels, 5, partition(labels, 5, 19, "iid", rng()))
    assert len(np.unique(counts, axis=0)) > 1


def test_natural_follows_the_users():
    users = np.array([7, 3, 7, 7, 900, 3])
    parts = partition(np.zeros(6, int), 1, 3, "natural", rng(), users=users)
    assert [list(part) for part in parts] == [[1, 5], [0, 2, 3], [4]]


def test_all_samples_are_dealt_when_they_divide():
    """With nothing over, the last picks must take whatever is left, also from classes of no prior mass at all."""
    labels = np.repeat([0, 1, 2], [1, 5, 54])
    for seed in range(20):
        parts = partition(labels, 3, 6, "dirichlet_1e-9", rng(seed))
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(60))


def test_every_pick_is_uniform_among_the_clients_that_are_not_full():
    """Sizes 1, 2: the sequences 011, 101, 110 have probabilities 1/2, 1/4, 1/4."""
    generator = rng(3)
    firsts = [int(np.flatnonzero(_order_of_draws(np.array([1, 2]), generator) == 0)[0]) for _ in range(6000)]
    shares = np.bincount(firsts, minlength=3) / 6000
    assert shares == pytest.approx([0.5, 0.25, 0.25], abs=0.03)


def test_the_distribution_is_that_of_one_by_one():
    """Same priors, scarce and plentiful classes: the mean count of every client and class agrees, and its spread."""
    labels = np.repeat(np.arange(4), [6, 10, 20, 24])
    prior = np.array([[0.7, 0.1, 0.1, 0.1], [0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.0, 0.0], [1e-3, 0.9, 0.05, 0.049]])

    with np.errstate(divide="ignore"):
        logs = np.maximum(np.log(prior), -1e3)
    sizes = np.full(4, 14)
    generator, repeats = rng(5), 1500
    # A share of exactly 0 has no renormalisation when nothing else is left, so the oracle gets a very small one too.
    slow = np.array([label_counts(labels, 4, one_by_one(labels, prior + 1e-12, 14, generator)) for _ in range(repeats)])
    fast = np.array([label_counts(labels, 4, _dirichlet(labels, logs, sizes, generator)) for _ in range(repeats)])
    error = np.sqrt((slow.var(axis=0) + fast.var(axis=0)) / repeats) + 1e-9
    assert np.abs((slow.mean(axis=0) - fast.mean(axis=0)) / error).max() < 4.5
    assert fast.std(axis=0) == pytest.approx(slow.std(axis=0), abs=0.15)


@pytest.mark.parametrize("delta", [0.05, 0.3, 5.0])
def test_clients_follow_their_dirichlet_prior(delta):
    """With plenty of every class, E[sum_c share_c^2] over n draws is (1 + (n - 1) (delta + 1) / (C delta + 1)) / n."""
    classes, size, clients = 10, 20, 800
    labels = np.repeat(np.arange(classes), 10_000)
    drawn = _dirichlet(labels, log_dirichlet(delta, (clients, classes), rng(2)), np.full(clients, size), rng(3))
    shares = label_counts(labels, classes, drawn) / size
    expected = (1 + (size - 1) * (delta + 1) / (classes * delta + 1)) / size
    assert (shares**2).sum(axis=1).mean() == pytest.approx(expected, rel=0.05)


def test_log_dirichlet_is_dirichlet():
    shares = np.exp(log_dirichlet(0.5, (20_000, 3), rng()))
    shares /= shares.sum(axis=1, keepdims=True)
    assert shares.mean(axis=0) == pytest.approx([1 / 3] * 3, abs=0.01)
    assert shares.var(axis=0) == pytest.approx([(1 / 3) * (2 / 3) / 2.5] * 3, rel=0.05)
    assert np.isfinite(log_dirichlet(1e-320, (100, 3), rng())).all()


def test_five_hundred_clients_in_well_under_a_second():
    labels = np.repeat(np.arange(100), 500)
    start = time.process_time()
    partition(labels, 100, 500, "dirichlet_0.3", rng())
    assert time.process_time() - start < 0.8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clients": 13}, "clients = 13 for 12 samples; use at most 12"),
        ({"clients": 0}, "clients = 0"),
        ({"spec": "dirichlet"}, "expected dirichlet_<delta>"),
        ({"spec": "dirichlet_0"}, "positive finite delta"),
        ({"spec": "shards_0"}, "expected dirichlet_<delta>"),
        ({"spec": "natural"}, "this dataset has no user ids"),
        ({"spec": "natural", "users": np.arange(12)}, "has 12 users; set clients=12"),
        ({"spec": "natural", "users": np.arange(4)}, "one for each of 12"),
        ({"spec": "shards_2", "size_sigma": 0.5}, "only dirichlet and iid"),
        ({"size_sigma": -1.0}, "size_sigma = -1.0"),
        ({"num_classes": 2}, r"span 0 .. 2; expected 0 .. 1"),
        ({"targets": np.zeros(12)}, "whole numbers"),
    ],
)
def test_errors_name_the_value_and_the_remedy(changes, message):
    arguments = {"targets": np.arange(12) % 3, "num_classes": 3, "clients": 3, "spec": "iid", "rng": rng(), **changes}
    with pytest.raises(ValueError, match=message):
        partition(**arguments)

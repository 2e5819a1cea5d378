"""Who takes part, who drops out, who trains less."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedasd_fast.common.philox import client_words, stream_key
from fedasd_fast.common.randomness import Stream, generator
from fedasd_fast.config import Config
from fedasd_fast.settings import Failures
from fedasd_fast.simulation import sampling


@settings(max_examples=60, deadline=None)
@given(
    clients=st.integers(1, 300),
    participation=st.floats(0.01, 1.0),
    rule=st.sampled_from(["bernoulli", "fixed"]),
    seed=st.integers(0, 2**32),
    round=st.integers(0, 10**6),
)
def test_a_sorted_set_that_is_never_empty(clients: int, participation: float, rule: Any, seed: int, round: int) -> None:
    config = Config(clients=clients, participation=participation, sampling=rule, seed=seed)
    found = sampling.participants(config, round)
    assert 1 <= len(found) <= clients
    assert np.all(np.diff(found) > 0)
    assert found[0] >= 0
    assert found[-1] < clients
    assert np.array_equal(found, sampling.participants(config, round))
    if rule == "fixed":
        assert abs(len(found) - participation * clients) <= 0.5 or len(found) == 1


def draws(config: Config, rounds: int = 4000) -> np.ndarray:
    taken = np.zeros((rounds, config.clients), dtype=bool)
    for t in range(rounds):
        taken[t, sampling.participants(config, t)] = True
    return taken


def test_bernoulli_is_a_coin_for_each_client() -> None:
    clients, p = 20, 0.15
    taken = draws(Config(clients=clients, participation=p, seed=3))
    counts = taken.sum(1)
    some = 1 - (1 - p) ** clients  # an empty round is drawn again
    mean = clients * p / some
    variance = (clients * p * (1 - p) + (clients * p) ** 2) / some - mean**2
    assert counts.mean() == pytest.approx(mean, abs=4 * np.sqrt(variance / len(counts)))
    assert counts.var() == pytest.approx(variance, rel=0.12)
    share = p / some
    error = np.sqrt(share * (1 - share) / len(taken))
    assert np.abs(taken.mean(0) - share).max() < 4 * error  # all clients alike
    # Coins are independent: pairs meet as often as they should.
    pairs = (taken.T.astype(float) @ taken / len(taken))[np.triu_indices(clients, 1)]
    assert np.abs(pairs - p * p / some).max() < 4.5 * np.sqrt(p * p / len(taken))


def test_a_fixed_count() -> None:
    taken = draws(Config(clients=20, participation=0.15, sampling="fixed"), 2000)
    assert set(taken.sum(1)) == {3}
    assert np.abs(taken.mean(0) - 0.15).max() < 4 * np.sqrt(0.15 * 0.85 / 2000)


def test_all_clients() -> None:
    for rule in ("bernoulli", "fixed"):
        config = Config(clients=7, participation=1.0, sampling=rule)
        assert sampling.participants(config, 0).tolist() == list(range(7))


def test_seeds_do_not_share_their_rounds() -> None:
    """With seed + round as the seed, seed 1 in round t would repeat seed 0 in round t + 1."""
    first, second = (draws(Config(clients=30, participation=0.3, seed=seed), 50) for seed in (0, 1))
    assert not any(np.array_equal(a, b) for a in first for b in second)


def test_a_tiny_share_does_not_loop_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty draws are nearly certain here: their number must be bounded."""

    class Counting:
        calls = 0

        def __init__(self, rng: np.random.Generator) -> None:
            self._rng = rng

        def __getattr__(self, name: str) -> Any:
            Counting.calls += 1
            assert Counting.calls < 10_000, "still drawing"
            return getattr(self._rng, name)

    original = sampling.generator
    monkeypatch.setattr(sampling, "generator", lambda *a: Counting(original(*a)))
    assert len(sampling.participants(Config(clients=10, participation=1e-12), 0)) == 1


@pytest.fixture(params=[1, 2])
def version(request: pytest.FixtureRequest) -> Any:
    """Of the random numbers."""
    return request.param


def epochs(version: Any, dropout: float, stragglers: float, local: int = 5) -> np.ndarray:
    config = Config(failures=Failures(dropout, stragglers), local_epochs=local, random_streams=version)
    return np.concatenate([sampling.local_epochs(config, round, np.arange(round, 3000, 7)) for round in range(7)])


def test_without_failures_everyone_trains_in_full(version: Any) -> None:
    assert set(epochs(version, 0, 0)) == {5}


def test_shares_of_failures(version: Any) -> None:
    found = epochs(version, dropout=0.3, stragglers=0.4)
    shares = np.bincount(found, minlength=6) / len(found)
    assert shares[0] == pytest.approx(0.3, abs=0.03)
    assert shares[5] == pytest.approx(0.7 * 0.6, abs=0.03)
    assert shares[1:5] == pytest.approx(np.full(4, 0.7 * 0.4 / 4), abs=0.02)


@pytest.mark.parametrize(("dropout", "stragglers", "allowed"), [(0.5, 0, {0, 5}), (0, 0.5, {1, 2, 3, 4, 5})])
def test_one_kind_of_failure(version: Any, dropout: float, stragglers: float, allowed: set[int]) -> None:
    assert set(epochs(version, dropout, stragglers)) == allowed


def test_failures_have_a_stream_of_their_own() -> None:
    config = Config(failures=Failures(dropout=0.5), seed=2, random_streams=1)
    later = Config(failures=Failures(dropout=0.5), seed=2, random_streams=2)
    key = stream_key(2, Stream.FAILURE)
    for round in range(4):
        drops = [generator(2, Stream.FAILURE, round, k).random() < 0.5 for k in range(8)]
        assert sampling.local_epochs(config, round, np.arange(8)).tolist() == [0 if drop else 5 for drop in drops]
        drops = (client_words(key, 0, 0, np.arange(8), round)[:, 0] < 2**31).tolist()
        assert sampling.local_epochs(later, round, np.arange(8)).tolist() == [0 if drop else 5 for drop in drops]


def test_failures_of_a_client_do_not_depend_on_the_others(version: Any) -> None:
    config = Config(failures=Failures(0.3, 0.4), random_streams=version)
    clients = np.array([3, 700, 41, 8])
    alone = [int(sampling.local_epochs(config, 2, clients[k : k + 1])[0]) for k in range(4)]
    assert sampling.local_epochs(config, 2, clients).tolist() == alone


def test_nobody_can_do_less_than_one_epoch(version: Any) -> None:
    assert set(epochs(version, 0, 0.5, local=1)) == {1}

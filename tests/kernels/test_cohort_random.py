"""Orders of a whole cohort: permutations, all equally likely, the same compiled and in numpy, for any grouping."""

from __future__ import annotations

import math
from collections import Counter
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedasd_fast.common.philox import philox
from fedasd_fast.kernels import loader
from fedasd_fast.kernels.cohort_random import epoch_orders, use_compiled

needs_extension = pytest.mark.skipif(not loader.available, reason="needs the compiled extension")


def numbers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@needs_extension
def test_compiled_words_are_the_reference_words(capability: str) -> None:
    counters = np.random.default_rng(0).integers(0, 2**32, (500, 4), np.uint32)
    for key in (0, 1, 2**63 + 12345, 2**64 - 1):
        assert (loader.module.philox_words(key, counters) == philox(key, counters)).all()


@needs_extension
@pytest.mark.parametrize("sizes", [(1,), (2, 3), (31, 32, 33), (64, 65, 1, 20), (500,)])
def test_compiled_orders_are_the_reference_orders(sizes: tuple[int, ...], capability: str) -> None:
    clients, epochs = numbers(*range(5, 5 + len(sizes))) * 1_000_003, numbers(*(1 + k % 3 for k in range(len(sizes))))
    found = [
        epoch_orders(2**40, 17, clients, numbers(*sizes), epochs, first_epoch=2, implementation=way)
        for way in ("fused", "reference")
    ]
    assert found[0].dtype == found[1].dtype == np.int64
    assert found[0].tolist() == found[1].tolist()


@given(
    sizes=st.lists(st.integers(0, 70), min_size=1, max_size=6),
    seed=st.integers(0, 2**70),
    round=st.integers(0, 2**31),
    way=st.sampled_from(["auto", "reference"]),
)
@settings(max_examples=40, deadline=None)
def test_orders_are_permutations_that_do_not_depend_on_the_cohort(
    sizes: list[int], seed: int, round: int, way: str
) -> None:
    clients, epochs = np.arange(len(sizes)) + 3, np.full(len(sizes), 2)
    found = epoch_orders(seed, round, clients, numbers(*sizes), epochs, implementation=way)
    start = 0
    for client, n in zip(clients, sizes, strict=True):
        for epoch in range(2):
            order = found[start : start + n]
            assert sorted(order.tolist()) == list(range(n))
            alone = epoch_orders(seed, round, numbers(client), numbers(n), numbers(1), epoch, implementation=way)
            assert alone.tolist() == order.tolist()
            start += n
    assert start == len(found)


def test_all_orders_are_equally_likely() -> None:
    clients = np.arange(24_000)
    found = epoch_orders(0, 0, clients, np.full(24_000, 4), np.ones(24_000, np.int64)).reshape(-1, 4)
    counts = Counter(map(tuple, found.tolist()))
    assert set(counts) == set(permutations(range(4)))
    deviation = sum((count - 1000) ** 2 / 1000 for count in counts.values())
    assert abs(deviation - 23) < 5 * math.sqrt(46)


def test_every_sample_is_everywhere_equally_often() -> None:
    found = epoch_orders(1, 2, np.arange(2_000), np.full(2_000, 40), np.full(2_000, 2)).reshape(-1, 40)
    table = np.stack([np.bincount(column, minlength=40) for column in found.T])
    freedom = 39 * 39
    assert abs(((table - 100) ** 2 / 100).sum() - freedom) < 5 * math.sqrt(2 * freedom)


def test_neighbouring_clients_rounds_epochs_and_seeds_have_orders_of_their_own() -> None:
    keys = list(product((0, 1), repeat=4))  # seed, round, client, epoch
    orders = {tuple(epoch_orders(s, r, numbers(c), numbers(30), numbers(1), e).tolist()) for s, r, c, e in keys}
    assert len(orders) == len(keys)


def test_pinned() -> None:
    """Changes only if every result of version 2 does."""
    found = epoch_orders(0, 1, numbers(2, 5), numbers(5, 4), numbers(1, 2))
    assert found.tolist() == [2, 4, 0, 1, 3, 2, 1, 3, 0, 2, 3, 0, 1]


def test_errors() -> None:
    with pytest.raises(ValueError, match="2 clients with 1 sizes and 2 epochs"):
        epoch_orders(0, 0, numbers(1, 2), numbers(3), numbers(1, 1))
    with pytest.raises(ValueError, match=r"clients span -1 \.\. 2; expected 0 \.\. 2\^32 - 1"):
        epoch_orders(0, 0, numbers(-1, 2), numbers(3, 3), numbers(1, 1))
    with pytest.raises(ValueError, match="implementation = 'fast'; expected 'auto', 'fused' or 'reference'"):
        use_compiled("fast")


def test_without_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = epoch_orders(3, 1, numbers(4), numbers(9), numbers(2)).tolist()
    monkeypatch.setattr(loader, "available", False)
    monkeypatch.setattr(loader, "reason", "not compiled")
    assert epoch_orders(3, 1, numbers(4), numbers(9), numbers(2)).tolist() == expected
    with pytest.raises(RuntimeError, match="implementation = 'fused', but not compiled"):
        use_compiled("fused")

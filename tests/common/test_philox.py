"""Philox4x32-10 and what is made from its words."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedasd_fast.common import elementary
from fedasd_fast.common.philox import below, client_words, fraction, philox, stream_key
from fedasd_fast.common.randomness import Stream

# Random123's known answers (kat_vectors, philox4x32 with 10 rounds): counter, key, words.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter: str, key: str, expected: str) -> None:
    low, high = words(key)
    assert philox(low | high << 32, np.array(words(counter), np.uint32)).tolist() == words(expected)


def test_pinned() -> None:
    """These change only if every result of version 2 does."""
    assert stream_key(0, Stream.SHUFFLE) == 12467808127879573787
    assert stream_key(2**70 + 1, Stream.SYNTHETIC) == 3994327356403100981
    assert client_words(1, 2, 3, 4, 5).tolist() == [496402361, 2477985318, 1624485285, 238839059]


def test_all_that_is_told_matters() -> None:
    keys = {stream_key(seed, stream) for seed in (0, 1, 2**32, 2**64, 2**64 + 1) for stream in Stream}
    assert len(keys) == 5 * len(Stream)
    one, other = np.meshgrid(np.arange(40), np.arange(40))
    for arguments in ((one, other, 0, 0), (0, one, other, 0), (0, 0, one, other), (one, 0, 0, other)):
        found = client_words(7, *arguments).reshape(-1, 4)
        assert len(np.unique(found, axis=0)) == 1600


def test_words_are_uniform_and_independent() -> None:
    found = client_words(stream_key(3, Stream.SHUFFLE), np.arange(20_000), 0, 11, 4)
    for shift in (0, 12, 24):
        for word in range(4):
            counts = np.bincount((found[:, word] >> np.uint32(shift)) & np.uint32(255), minlength=256)
            assert chi_square(counts) < 5
    neighbours = client_words(stream_key(3, Stream.SHUFFLE), np.arange(20_000), 0, 12, 4)
    pairs = np.corrcoef(np.concatenate([fraction(found), fraction(neighbours)], axis=1).T)
    assert np.abs(pairs - np.eye(8)).max() < 4.5 / math.sqrt(20_000)


def chi_square(counts: np.ndarray) -> float:
    """In standard deviations from its mean."""
    expected, freedom = counts.sum() / counts.size, counts.size - 1
    return float(abs(((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom))


@pytest.mark.parametrize("n", [1, 2, 3, 10, 1000, 2**31 + 5])
def test_below(n: int) -> None:
    found = client_words(stream_key(0, Stream.SHUFFLE), np.arange(30_000), 1, 0)
    drawn = below(n, found[:, 0], found[:, 1])
    assert 0 <= drawn.min() <= drawn.max() < n
    exact = [((high << 32 | low) * n) >> 64 for high, low in found[:200, :2].tolist()]
    assert drawn[:200].tolist() == exact
    if 1 < n <= 1000:
        assert chi_square(np.bincount(drawn, minlength=n)) < 5


def test_logarithm_and_exponential_are_accurate() -> None:
    x = np.exp(np.random.default_rng(0).uniform(-300, 300, 20_000))
    x = np.concatenate([x, 1 + np.linspace(-0.4, 0.4, 1001), [1.0, 2.0, 0.5, math.sqrt(2)]])
    assert np.abs(elementary.logarithm(x) - np.log(x)).max() < 1e-13
    near = np.linspace(0.9, 1.1, 1001)
    assert elementary.logarithm(near) == pytest.approx(np.log(near), rel=1e-14, abs=1e-17)
    y = -np.concatenate([np.linspace(0, 1, 5001), np.linspace(0, 699.9, 5001)])
    assert elementary.exponential(y) == pytest.approx(np.exp(y), rel=1e-14)
    assert elementary.exponential(np.array([0.0, -701.0, -1e301])).tolist() == [1.0, 0.0, 0.0]


def test_normal_deviates() -> None:
    found = client_words(9, np.arange(100_000), 2, 0)
    values = np.concatenate([np.stack(elementary.normal_pairs(found[:, 2 * i], found[:, 2 * i + 1])) for i in (0, 1)])
    assert values.dtype == np.float32
    edges = [-2.326, -1.645, -0.6745, 0.0, 0.6745, 1.645, 2.326]
    shares = np.diff([0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0])
    for row in values:
        counts = np.bincount(np.searchsorted(edges, row), minlength=8)
        deviations = (counts - 1e5 * shares) / np.sqrt(1e5 * shares * (1 - shares))
        assert np.abs(deviations).max() < 4.5
        assert row.mean() == pytest.approx(0, abs=0.015)
        assert row.std() == pytest.approx(1, abs=0.01)
        assert (row.astype(np.float64) ** 4).mean() == pytest.approx(3, abs=0.15)
    assert np.abs(np.corrcoef(values) - np.eye(4)).max() < 0.015
    assert np.abs(np.corrcoef(values**2) - np.eye(4)).max() < 0.015


def test_normal_deviates_against_double_precision() -> None:
    """Also at the ends of both ranges."""
    radius = np.array([0, 255, 256, 2**31, 2**32 - 1, 0xB504F300, 0xB504F400], np.uint32).repeat(9)
    angle = np.tile(np.array([0, 1, 2**29, 2**30 - 1, 2**30, 2**31, 3 * 2**30, 2**32 - 1, 12345], np.uint32), 7)
    u = ((radius >> 8).astype(float) + 1) * 2**-24
    turns = (angle >> 30) + (((angle & 0x3FFFFFFF) >> 6) * 2.0**-24 - 0.5)
    expected = np.sqrt(-2 * np.log(u)) * np.stack([np.cos(turns * math.pi / 2), np.sin(turns * math.pi / 2)])
    assert np.stack(elementary.normal_pairs(radius, angle)) == pytest.approx(expected, abs=2e-6)

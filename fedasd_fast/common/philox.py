"""Philox4x32-10 in numpy: random words as a function of a key and a counter (Salmon et al., 2011).

Any number of any stream can be had at once and in any order: that is what makes the draws of a whole cohort one call.
The compiled twin is csrc/random/philox.h; both give the same words.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .randomness import Stream

Words = NDArray[np.uint32]
_ROUNDS = 10
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = 0x9E3779B9, 0xBB67AE85
_32 = np.uint64(32)


@lru_cache(maxsize=64)
def stream_key(seed: int, stream: Stream) -> int:
    """The key of a stream, 64 bits.  A seed may be larger than that, so both are hashed; the seed comes last, since
    trailing zeros would not count."""
    return int(np.random.SeedSequence((stream, seed)).generate_state(1, np.uint64)[0])


def philox(key: int, counters: Words) -> Words:
    """Words [..., 4] of the counters [..., 4]."""
    a, b, c, d = np.moveaxis(counters, -1, 0).astype(np.uint64)
    low = np.uint64(0xFFFFFFFF)
    keys = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(_ROUNDS):
        first, second = _MULTIPLIERS[0] * a, _MULTIPLIERS[1] * c
        a, b = (second >> _32) ^ b ^ np.uint64(keys[0]), second & low
        c, d = (first >> _32) ^ d ^ np.uint64(keys[1]), first & low
        keys = [(number + step) & 0xFFFFFFFF for number, step in zip(keys, _WEYL, strict=True)]
    return np.stack([a, b, c, d], axis=-1).astype(np.uint32)


def client_words(key: int, position: ArrayLike, part: ArrayLike, client: ArrayLike, round: ArrayLike = 0) -> Words:
    """Words [..., 4] at a position of a part of a client's stream in a round; arguments are broadcast."""
    words = np.broadcast_arrays(*(np.asarray(number, np.uint32) for number in (position, part, client, round)))
    return philox(key, np.stack(words, axis=-1))


def below(n: ArrayLike, high: Words, low: Words) -> NDArray[np.int64]:
    """Whole numbers below n (of at most 32 bits) from 64 random bits each.

    The most and the least likely differ by a factor of 1 + n / 2^64.
    """
    n = np.asarray(n, np.uint64)
    drawn: NDArray[np.int64] = ((high * n + (low * n >> _32)) >> _32).astype(np.int64)
    return drawn


def fraction(words: Words) -> NDArray[np.float64]:
    """Uniform in (0, 1)."""
    return (words.astype(np.float64) + 0.5) * 2.0**-32

"""Logarithm, exponential and normal deviates from additions, multiplications, divisions and square roots alone.

These are rounded in the same way everywhere, so results are the same bits on every machine, and the same as those of
the compiled twin, csrc/random/elementary.h, which names the sources of the coefficients.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .philox import Words

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
_LOG = (-1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1,
        -2.4999993993e-1, 3.3333331174e-1)  # fmt: skip
_SINE = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COSINE = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)


def logarithm(x: Doubles) -> Doubles:
    """log x for normal positive x: with x = 2^e m and s = (m - 1) / (m + 1), log m = 2 atanh s."""
    bits = x.view(np.int64)
    exponent = (bits >> 52) - 1023
    m = ((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000).view(np.float64)
    large = m > 1.4142135623730951
    m, exponent = np.where(large, m * 0.5, m), exponent + large
    s = (m - 1.0) / (m + 1.0)
    z, series = s * s, np.zeros_like(s)
    for odd in range(23, 0, -2):
        series = series * z + 1.0 / odd
    result: Doubles = 2.0 * s * series + exponent.astype(np.float64) * 0.6931471805599453
    return result


def exponential(x: Doubles) -> Doubles:
    """exp x for x <= 0; 0 below -700."""
    inside = np.maximum(x, -700.0)
    k = (inside * 1.4426950408889634 - 0.5).astype(np.int64)
    r = (inside - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10
    series = np.ones_like(r)
    for n in range(14, 0, -1):
        series = 1.0 + series * r / n
    result: Doubles = np.where(x < -700.0, 0.0, series * ((k + 1023) << 52).view(np.float64))
    return result


def normal_pairs(radius: Words, angle: Words) -> tuple[Floats, Floats]:
    """Two independent standard normal deviates from two words (Box and Muller, 1958); at most 5.8 in size."""
    one = np.float32(1)
    u = ((radius >> np.uint32(8)).astype(np.int32) + 1).astype(np.float32) * np.float32(2**-24)
    bits = u.view(np.int32)
    mantissa = bits & 0x7FFFFF
    large = (mantissa > 0x3504F3).astype(np.int32)
    e = ((bits >> 23) - 127 + large).astype(np.float32)
    m = (mantissa | (0x3F800000 - (large << 23))).view(np.float32) - one
    z: Floats = m * m
    log: Floats = np.full_like(m, 7.0376836292e-2)
    for coefficient in _LOG:
        log = log * m + np.float32(coefficient)
    log = log * m * z
    log = log + e * np.float32(-2.12194440e-4)
    log = log - np.float32(0.5) * z
    log = (m + log) + e * np.float32(0.693359375)
    r = np.sqrt(np.float32(-2) * log)

    quarter = ((angle & np.uint32(0x3FFFFFFF)) >> np.uint32(6)).astype(np.int32).astype(np.float32)
    x = (quarter * np.float32(2**-24) - np.float32(0.5)) * np.float32(1.57079632679489662)
    y: Floats = x * x
    sine, cosine = np.full_like(y, _SINE[0]), np.full_like(y, _COSINE[0])
    for s, c in zip(_SINE[1:], _COSINE[1:], strict=True):
        sine, cosine = sine * y + np.float32(s), cosine * y + np.float32(c)
    sine = sine * y * x + x
    cosine = cosine * y * y - np.float32(0.5) * y + one
    swapped, turned = angle & np.uint32(0x40000000) != 0, angle & np.uint32(0x80000000) != 0
    first, second = np.where(swapped, -sine, cosine), np.where(swapped, cosine, sine)
    return r * np.where(turned, -first, first), r * np.where(turned, -second, second)

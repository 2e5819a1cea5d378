"""Sums whose bits do not depend on who finished first."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedasd_fast.simulation.aggregation import fixed_point
from fedasd_fast.simulation.aggregation.fixed_point import LIMIT, in_range, to_fixed, to_float

HALF_UNIT = Fraction(1, 2**45)
values = st.floats(-LIMIT, LIMIT, exclude_min=True, exclude_max=True)
terms = st.lists(st.tuples(values, st.floats(0.01, 1.0)), min_size=1, max_size=12)


def total(pairs: list[tuple[float, float]]) -> torch.Tensor:
    result = fixed_point.zeros(1, torch.device("cpu"))
    for value, weight in pairs:
        result += to_fixed(torch.tensor([value], dtype=torch.float64), weight)
    return result


@settings(max_examples=60, deadline=None)
@given(terms=terms, seed=st.integers(0, 1000))
def test_any_order_and_grouping_gives_the_same_bits(terms: list[tuple[float, float]], seed: int) -> None:
    terms = [(value, weight / len(terms)) for value, weight in terms]
    rng = np.random.default_rng(seed)
    shuffled = [terms[i] for i in rng.permutation(len(terms))]
    cut = int(rng.integers(0, len(terms) + 1))
    grouped = total(shuffled[cut:]) + total(shuffled[:cut])
    assert torch.equal(total(terms), grouped)


@settings(max_examples=60, deadline=None)
@given(terms=terms)
def test_close_to_the_exact_sum(terms: list[tuple[float, float]]) -> None:
    terms = [(value, weight / len(terms)) for value, weight in terms]
    exact = sum((Fraction(value) * Fraction(weight) for value, weight in terms), Fraction(0))
    found = Fraction(int(total(terms))) / 2**44
    # Half a unit for each term, and the rounding of value * weight to 53 bits.
    rounding = sum((abs(Fraction(value) * Fraction(weight)) for value, weight in terms), Fraction(0)) / 2**52
    assert abs(found - exact) <= len(terms) * HALF_UNIT + rounding


def test_floating_point_itself_would_depend_on_the_order() -> None:
    """Or the two tests above would prove nothing."""
    values = np.random.default_rng(0).normal(size=200)
    assert len({float(sum(np.random.default_rng(i).permutation(values))) for i in range(5)}) > 1


@settings(max_examples=60, deadline=None)
@given(x=st.floats(-1e5, 1e5))
def test_back_and_forth(x: float) -> None:
    found = to_float(to_fixed(torch.tensor([x], dtype=torch.float64), 1.0)).item()
    assert abs(found - x) <= 2**-45


def test_float32_parameters_survive_unless_tiny() -> None:
    x = torch.tensor([1e-6, 0.1, -3.7, 1000.5])
    assert torch.equal(to_float(to_fixed(x, 1.0)).float(), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_added_is_left_as_it_was(dtype: torch.dtype) -> None:
    x = torch.tensor([1.5, -2.25], dtype=dtype)
    to_fixed(x, 0.5)
    assert x.tolist() == [1.5, -2.25]
    counts = to_fixed(x, 1.0)
    before = counts.clone()
    to_float(counts)
    assert torch.equal(counts, before)


def test_the_largest_sums_do_not_overflow() -> None:
    """Changes of a state may be twice the limit, and the weights sum to 1."""
    largest = torch.tensor([2 * LIMIT, -2 * LIMIT], dtype=torch.float64)
    parts = sum(to_fixed(largest, 1 / 7) for _ in range(7))
    assert to_float(parts).tolist() == pytest.approx([2 * LIMIT, -2 * LIMIT], rel=1e-15)


@pytest.mark.parametrize("bad", [LIMIT, -LIMIT, float("inf"), float("-inf"), float("nan")])
def test_out_of_range(bad: float) -> None:
    for position in range(3):
        x = torch.zeros(3)
        x[position] = bad
        assert not in_range(x)


def test_in_range() -> None:
    assert in_range(torch.tensor([0.0, LIMIT - 1, 1 - LIMIT]))

"""The compiled sum over clients: the very integers of the reference, whatever it is given."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedasd_fast.kernels import loader
from fedasd_fast.simulation.aggregation.fixed_point import LIMIT, accumulate, to_fixed

pytestmark = pytest.mark.skipif(not loader.available, reason="needs the compiled extension")
UNIT = 2.0**-44


def both(values: Tensor, weights: float | list[float], start: int = 0) -> Tensor:
    """The fused total; it must be the reference's."""
    totals = []
    for implementation in ("fused", "reference"):
        total = torch.arange(values.shape[-1]) + start
        accumulate(total, values, weights, implementation=implementation)
        totals.append(total)
    assert torch.equal(*totals)
    return totals[0]


# Every exponent at which rounding does something, halves of the unit, and what a trained parameter never is.
numbers = st.one_of(
    st.floats(-LIMIT, LIMIT), st.floats(-1e-10, 1e-10), st.integers(-(2**20), 2**20).map(lambda n: n * UNIT / 2),
    st.integers(-(2**53), 2**53).map(lambda n: n * 2.0**-36), st.integers(-(2**53), 2**53).map(lambda n: n * 2.0**-45),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    rows=st.integers(1, 20).flatmap(lambda p: st.lists(st.lists(numbers, min_size=p, max_size=p), min_size=1,
                                                       max_size=4)),
    weights=st.lists(st.one_of(st.floats(-1, 1), st.sampled_from([1.0, 0.5, 1 / 3])), min_size=4, max_size=4),
    narrow=st.booleans(), start=st.integers(-(2**62), 2**62),
)  # fmt: skip
def test_bit_for_bit(rows: list[list[float]], weights: list[float], narrow: bool, start: int) -> None:
    values = torch.tensor(rows, dtype=torch.float32 if narrow else torch.float64)
    both(values, weights[: len(rows)], start)
    both(values[0], weights[0], start)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("clients", [None, 1, 3, 17])
def test_sizes_and_alignments(dtype: torch.dtype, clients: int | None, capability: str) -> None:
    random = torch.Generator().manual_seed(0)
    weights = [0.1 * k - 0.3 for k in range(clients or 1)]
    for size in (1, 7, 8, 9, 1000, 1023, 1025, 5000):
        buffer = torch.randn((clients or 1, size + 5), generator=random, dtype=torch.float64).to(dtype)
        # From far below the unit to far above what the fast way of rounding takes.
        buffer *= 2.0 ** torch.randint(-50, 17, buffer.shape, generator=random)
        for offset in (0, 3):
            values = buffer[:, offset : offset + size]
            both(values if clients else values[0], weights)


def test_ties_go_to_the_even_neighbour(capability: str) -> None:
    halves = torch.tensor([n / 2 for n in range(-9, 10)], dtype=torch.float64)
    total = torch.zeros(19, dtype=torch.int64)
    accumulate(total, halves * UNIT, 1.0, implementation="fused")
    assert total.tolist() == [round(x) for x in halves.tolist()]  # Python rounds halves to even as well


def test_what_no_integer_holds_is_what_torch_makes_of_it(capability: str) -> None:
    values = torch.tensor(
        [math.inf, -math.inf, math.nan, 1e10, -1e10, 2.0**19, -(2.0**19), 2.0**18], dtype=torch.float64
    )
    both(values, 1.0)
    both(values.float(), 1.0)
    both(values.repeat(2, 3), [0.5, 0.25], 2**62)  # sums that wrap around


def test_taking_away_is_adding_with_the_sign_turned(capability: str) -> None:
    values = (
        torch.randn(1001, generator=torch.Generator().manual_seed(1)) * 1e-9
    )  # a few hundred units, and their halves
    total = torch.zeros(1001, dtype=torch.int64)
    accumulate(total, values, 1 / 7, implementation="fused")
    assert torch.equal(total, to_fixed(values, 1 / 7))
    accumulate(total, values, -1 / 7, implementation="fused")
    assert not total.any()


@pytest.mark.parametrize("shape", [(300_001,), (3, 100_001)], ids=str)
def test_threads(shape: tuple[int, ...]) -> None:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        both(values, [0.25] * (shape[0] if len(shape) == 2 else 1))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("implementation", ["fused", "reference"])
def test_refused(implementation: str) -> None:
    total, values = torch.zeros(4, dtype=torch.int64), torch.ones(2, 4)
    for bad, message in (
        ((total.double(), values, [0.5, 0.5]), "total has dtype"),
        ((total[:3], values, [0.5, 0.5]), "total has shape"),
        ((total, values.half(), [0.5, 0.5]), "values has dtype"),
        ((total, values[None], [0.5]), "values has shape"),
        ((total, values, 0.5), "1 weights for 2 clients"),
        ((total, values, [0.5, math.nan]), "weight = nan"),
    ):
        with pytest.raises(ValueError, match=message):
            accumulate(*bad, implementation=implementation)
    assert not total.any()
    if implementation == "fused":
        with pytest.raises(ValueError, match="total has strides"):
            accumulate(torch.zeros(8, dtype=torch.int64)[::2], values, [0.5, 0.5], implementation=implementation)
        with pytest.raises(ValueError, match="total shares memory with values"):
            accumulate(total, total.view(torch.float64), 1.0, implementation=implementation)

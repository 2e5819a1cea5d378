from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fedasd_fast.algorithms import Cohort, create


def weights(counts: Sequence[Sequence[int]], members: Sequence[int] | None = None, **arguments: Any) -> np.ndarray:
    table = np.array(counts, dtype=float)
    sizes = table.sum(1).astype(int)
    chosen = np.arange(len(sizes)) if members is None else np.array(members)
    cohort = Cohort(chosen, sizes[chosen], sizes, lambda of: table[of] / table[of].sum(1, keepdims=True))
    found = create("feddisco", arguments).weights(cohort)
    return found / found.sum()


ONE_CLASS, HALF, EVEN = [8, 0, 0, 0], [4, 4, 0, 0], [2, 2, 2, 2]  # KL from uniform: log 4, log 2, 0


def test_official() -> None:
    # n/sum n = 1/3 each; d = 2/3, 1/3, 0; minus d/2, plus 0.1
    raw = np.array([1 / 3 - 1 / 3 + 0.1, 1 / 3 - 1 / 6 + 0.1, 1 / 3 + 0.1])
    np.testing.assert_allclose(weights([ONE_CLASS, HALF, EVEN]), raw / raw.sum(), atol=1e-15)


def test_official_counts_only_the_participants() -> None:
    np.testing.assert_allclose(weights([ONE_CLASS, HALF, EVEN], [1, 2]), np.array([0.1, 0.6]) / 0.7, atol=1e-15)


def test_paper_counts_all_clients() -> None:
    raw = np.array([1 / 3 - 0.1 / 3 + 0.5, 1 / 3 + 0.5])
    found = weights([ONE_CLASS, HALF, EVEN], [1, 2], variant="paper")
    np.testing.assert_allclose(found, raw / raw.sum(), atol=1e-15)


@pytest.mark.parametrize("changes", [dict(a=0.1, b=0.5, scope="all"), dict(variant="paper", scope=None)])
def test_a_variant_is_only_defaults(changes: dict[str, Any]) -> None:
    counts = [ONE_CLASS, HALF, EVEN, [1, 2, 3, 4]]
    np.testing.assert_array_equal(weights(counts, [0, 3], **changes), weights(counts, [0, 3], variant="paper"))


def test_negative_weights_become_zero() -> None:
    # 0.5 - 2 d: d = 1 for the skewed client, 0 for the other
    np.testing.assert_array_equal(weights([ONE_CLASS, EVEN], a=2.0, b=0.0), [0, 1])


def test_all_weights_zero_falls_back_to_fedavg() -> None:
    found = weights([ONE_CLASS, [0, 24, 0, 0]], a=9.0, b=0.0)  # 0.25 - 4.5 and 0.75 - 4.5
    np.testing.assert_allclose(found, [0.25, 0.75], atol=1e-15)


@pytest.mark.parametrize("classes", [3, 7, 10, 100])
def test_exactly_balanced_labels_give_nearly_fedavg(classes: int) -> None:
    """d = 0 for all: no division by zero, and no rounding error blown up to a distance."""
    found = weights([[1] * classes, [3] * classes, [6] * classes], a=0.5, b=0.0)
    np.testing.assert_allclose(found, [0.1, 0.3, 0.6], atol=1e-12)


def test_without_a_and_b_it_is_fedavg_and_a_large_b_makes_all_alike() -> None:
    counts = [ONE_CLASS, [0, 24, 8, 0], [1, 2, 3, 4]]
    np.testing.assert_allclose(weights(counts, a=0.0, b=0.0), np.array([8, 32, 10]) / 50, atol=1e-15)
    np.testing.assert_allclose(weights(counts, b=1e9), np.full(3, 1 / 3), atol=1e-8)

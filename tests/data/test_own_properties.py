"""Properties of the user's own data: whatever is given comes back, each sample at its client."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Subset, TensorDataset

from fedasd_fast.data import Dataset, PartitionedData, from_arrays, from_clients, from_torch


def samples(n: int) -> tuple[Any, Any]:
    """Each has its number in its input."""
    return np.arange(2 * n, dtype=np.float32).reshape(n, 2), np.arange(n) % 3


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(-3, 3), min_size=1, max_size=30) | st.lists(st.sampled_from("abZ"), min_size=1, max_size=30)
)
def test_users(ids: list[Any]) -> None:
    x, y = samples(len(ids))
    data = from_arrays(x, y, users=ids, test=(x, y), test_users=ids)
    assert isinstance(data, PartitionedData)
    assert data.client_names == tuple(map(str, sorted(set(ids))))
    for k, user in enumerate(sorted(set(ids))):
        rows = [row for row, one in enumerate(ids) if one == user]
        test = data.client_test(k)
        assert test is not None
        for found in (data.client(k), test):
            assert found.inputs.tolist() == x[rows].tolist()
            assert found.targets.tolist() == y[rows].tolist()
        assert data.label_counts(k).tolist() == np.bincount(y[rows], minlength=data.num_classes).tolist()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(0, 19), min_size=1, max_size=8), min_size=1, max_size=6))
def test_parts_subsets_and_clients_are_the_same(parts: list[list[int]]) -> None:
    x, y = samples(20)
    whole = TensorDataset(*map(torch.from_numpy, (x, y)))
    ways = [
        from_arrays(x, y, parts=parts),
        from_torch([Subset(whole, rows) for rows in parts]),
        from_clients([(x[rows], y[rows]) for rows in parts], num_classes=3),
    ]
    for data in ways:
        assert isinstance(data, PartitionedData)
        assert data.sizes.tolist() == list(map(len, parts))
        for k, rows in enumerate(parts):
            assert data.client(k).inputs.tolist() == x[rows].tolist()
            assert data.client(k).targets.tolist() == y[rows].tolist()
        every = data.cohort(np.arange(len(parts)))
        assert every.targets.tolist() == [int(y[row]) for rows in parts for row in rows]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.sampled_from(["int8", "int32", "uint16", ">i4", "int64", "bool"]))
def test_a_list_of_samples_is_a_dataset(n: int, kind: str) -> None:
    x, y = samples(n)
    labels = (y % 2).astype(kind)
    data = from_torch(list(zip(x, labels, strict=True)), test=[(x[0], labels[0])])
    arrays = from_arrays(x, labels, test=(x[:1], labels[:1]))
    assert isinstance(data, Dataset)
    assert isinstance(arrays, Dataset)
    assert data.train.inputs.tolist() == arrays.train.inputs.tolist() == x.tolist()
    assert data.train.targets.tolist() == arrays.train.targets.tolist() == (y % 2).tolist()

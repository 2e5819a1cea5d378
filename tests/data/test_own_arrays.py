"""The user's own arrays: what becomes of rows, users and lists of clients, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedasd_fast.config import from_dict
from fedasd_fast.data import Dataset, PartitionedData, from_arrays, from_clients
from fedasd_fast.data.load import divide


def arrays(count: int = 60, classes: int = 3) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Inputs whose first feature is the row number."""
    x = np.random.default_rng(0).standard_normal((count, 4)).astype(np.float32)
    x[:, 0] = np.arange(count)
    return x, np.arange(count) % classes


def rows_of(data: PartitionedData, k: int) -> list[int]:
    return [int(row) for row in data.client(k).inputs[:, 0]]


def test_arrays_are_divided_as_the_configuration_says() -> None:
    dataset = from_arrays(*arrays(), test=arrays(9))
    assert isinstance(dataset, Dataset)
    config = from_dict({"clients": 5, "partition": "iid"})
    data = divide(dataset, config)
    assert sorted(row for k in range(5) for row in rows_of(data, k)) == list(range(60))
    assert all(data.label_counts(k).tolist() == [4, 4, 4] for k in range(5))  # 20 of each class among 5 clients
    assert len(data.test) == 9


@given(st.lists(st.sampled_from(["carol", "bob", "alice"]), min_size=1, max_size=30))
def test_each_user_is_a_client(users: list[str]) -> None:
    data = from_arrays(*arrays(len(users)), users=users)
    assert isinstance(data, PartitionedData)
    assert data.client_names == tuple(sorted(set(users)))
    for k, name in enumerate(data.client_names):
        assert rows_of(data, k) == [row for row, user in enumerate(users) if user == name]


def test_test_samples_of_users() -> None:
    users, test = ["b", "a", "b"], arrays(4)
    data = from_arrays(*arrays(3), users=users, test=test, test_users=["b", "b", "a", "b"])
    assert isinstance(data, PartitionedData)
    assert len(data.test) == 4
    found = [data.client_test(k) for k in range(2)]
    assert [samples.inputs[:, 0].tolist() for samples in found if samples is not None] == [[2], [0, 1, 3]]


def test_own_partition() -> None:
    data = from_arrays(*arrays(), parts=[[3, 1], range(10, 14), np.array([1])])
    assert isinstance(data, PartitionedData)
    assert [rows_of(data, k) for k in range(3)] == [[3, 1], [10, 11, 12, 13], [1]]
    assert data.client_test(0) is None


def test_clients_by_name_and_in_a_list() -> None:
    x, y = arrays()
    pieces = [slice(0, 7), slice(7, 40), slice(40, 60)]
    listed = from_clients([(x[p], y[p].tolist()) for p in pieces], test=(x, y))
    named = from_clients(
        {name: (torch.from_numpy(x[p]), y[p]) for name, p in zip("zya", pieces, strict=True)},
        client_tests={"a": (x[:2], y[:2]), "z": (x[2:5], y[2:5])},
    )
    for data in (listed, named):
        assert [rows_of(data, k) for k in range(3)] == [list(range(60))[p] for p in pieces]
        assert data.num_classes == 3
    assert named.client_names == ("z", "y", "a")
    assert [len(found) for k in range(3) if (found := named.client_test(k)) is not None] == [3, 0, 2]
    assert len(named.test) == 5  # of all clients together
    assert listed.client_test(0) is None


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", ">i8", "bool"])
def test_labels_of_any_whole_numbers(dtype: str) -> None:
    data = from_arrays(arrays()[0], (np.arange(60) % 2).astype(dtype))
    assert isinstance(data, Dataset)
    assert data.train.targets.tolist() == [0, 1] * 30


def test_memory_is_shared_where_torch_can() -> None:
    x, y = arrays()
    data = from_arrays(x, y)
    assert isinstance(data, Dataset)
    assert data.train.inputs.data_ptr() == x.ctypes.data
    view = from_arrays(x[::-1], y[::-1])
    assert isinstance(view, Dataset)
    assert view.train.inputs[0, 0] == 59


IMAGES = np.zeros((6, 8, 8, 3), np.uint8)
LABELS = np.zeros(6, np.int64)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, y: from_arrays(IMAGES, LABELS), r"channels last; pass x.transpose\(0, 3, 1, 2\)"),
        (lambda x, y: from_arrays(IMAGES[..., 0], LABELS), r"no channels; pass x\[:, None\]"),
        (lambda x, y: from_arrays(x, y * 0.5), r"train: targets have .*regression, perhaps.*only classification"),
        (lambda x, y: from_arrays(x, y.astype(str)), r"np.unique\(y, return_inverse=True\)"),
        (lambda x, y: from_arrays(x, y[1:]), r"train: inputs of shape \(60, 4\) with targets of shape \(59,\)"),
        (lambda x, y: from_arrays(x, y, users=y, parts=[y]), "give one of them"),
        (lambda x, y: from_arrays(x, y, test_users=y), "test_users without users"),
        (lambda x, y: from_arrays(x, y, users=y, test=(x, y), test_users=y + 1), "test_users has .*3.* no training"),
        (lambda x, y: from_arrays(x, y, users=y[1:]), r"users has shape \(59,\); expected one id for each of 60"),
        (lambda x, y: from_arrays(x, y, parts=[[60]]), r"indices span 60 .. 60; expected 0 .. 59"),
        (lambda x, y: from_arrays(x, y, num_classes=2), "train labels span 0 .. 2; expected 0 .. 1"),
        (lambda x, y: from_arrays(x, y, test=x), r"test is a ndarray; expected a pair \(x, y\)"),
        (lambda x, y: from_arrays(x[:0], y[:0]), "no training samples"),
        (lambda x, y: from_clients([]), "there are no clients"),
        (lambda x, y: from_clients([x, x]), r"clients\[0\] is a ndarray; expected a pair"),
        (lambda x, y: from_clients({"a": (x, y), "b": (x[:, :2], y)}), r"inputs of client b are .*\(2,\), .*client a"),
        (lambda x, y: from_clients({"a": (x, y), "b": (x[:0], y[:0])}), "client 1 has no samples"),
        (lambda x, y: from_clients({"a": (x, y)}, client_tests={"c": (x, y)}), "'c', which is no client"),
        (lambda x, y: from_clients({"a": (x, y)}, client_tests=[(x, y)]), "the form of clients"),
        (lambda x, y: from_clients([(x, y)], client_tests=[(x, y)] * 2), "'1', which is no client"),
    ],
)  # fmt: skip
def test_errors_name_the_remedy(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(*arrays())

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from fedasd_fast.data.federated import Dataset, PartitionedData, Samples


def dataset(n=12, **changes):
    inputs = torch.arange(n * 12, dtype=torch.uint8).view(n, 3, 2, 2)
    fields = dict(
        name="toy", train=Samples(inputs, torch.arange(n) % 3), test=Samples(inputs[:4], torch.arange(4) % 3),
        num_classes=3, mean=(0.5,) * 3, std=(0.2,) * 3,
    )  # fmt: skip
    return Dataset(**{**fields, **changes})


PARTS = [np.array([5, 0, 7]), np.array([2]), np.array([11, 1])]


def test_clients_have_their_rows():
    toy = dataset()
    data = PartitionedData(toy, PARTS)
    for k, rows in enumerate(PARTS):
        client = data.client(k)
        assert torch.equal(client.inputs, toy.train.inputs[rows])
        assert torch.equal(client.targets, toy.train.targets[rows])
        assert torch.equal(data.label_counts(k), torch.bincount(client.targets, minlength=3))
        assert len(client) == len(rows)
    assert data.sizes.tolist() == [3, 1, 2]
    assert (data.num_clients, data.input_shape, data.is_image, data.num_classes) == (3, (3, 2, 2), True, 3)
    assert (data.mean, data.test, data.name) == (toy.mean, toy.test, "toy")
    assert data.nbytes >= toy.train.nbytes + toy.test.nbytes


def test_a_client_is_a_copy():
    toy = dataset()
    before = toy.train.inputs.clone()
    PartitionedData(toy, PARTS).client(0).inputs.zero_()
    assert torch.equal(toy.train.inputs, before)


def test_threads_may_ask_at_once():
    data = PartitionedData(dataset(), PARTS)
    with ThreadPoolExecutor(4) as pool:
        sums = list(pool.map(lambda i: int(data.client(i % 3).inputs.sum()), range(60)))
    assert sums == [int(data.client(i % 3).inputs.sum()) for i in range(60)]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "no client"),
        ([np.array([1]), np.array([], dtype=int)], "client 1 has no samples; use fewer clients"),
        ([np.array([12])], r"span 12 .. 12; expected 0 .. 11"),
        ([np.array([-1])], r"span -1"),
        ([np.array([1.0])], "whole numbers"),
    ],
)
def test_bad_parts(parts, message):
    with pytest.raises(ValueError, match=message):
        PartitionedData(dataset(), parts)


@pytest.mark.parametrize("k", [-1, 3])
def test_no_such_client(k):
    with pytest.raises(IndexError, match=rf"client {k} of toy; expected 0 .. 2"):
        PartitionedData(dataset(), PARTS).client(k)


@pytest.mark.parametrize(
    ("inputs", "targets", "message"),
    [
        (torch.zeros(2, 3), torch.zeros(3, dtype=torch.int64), r"\(2, 3\) with targets of shape \(3,\)"),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int64), r"expected \[n, ...\]"),
        (torch.zeros(2, 3), torch.zeros(2), r"regression, perhaps\); only classification is supported.* int64 \[n\]"),
        (torch.zeros(2, 3), torch.zeros(2, 4), r"several labels .* only classification is supported.*\.argmax\(1\)"),
        (torch.zeros(2, 3), torch.zeros(2, dtype=torch.int32), "dtype torch.int32; expected int64: call .long"),
        (torch.zeros(2, 3, dtype=torch.int32), torch.zeros(2, dtype=torch.int64), "dtype torch.int32; expected"),
        (torch.zeros(2, 3, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64), "images"),
    ],
)
def test_bad_samples(inputs, targets, message):
    with pytest.raises(ValueError, match=message):
        Samples(inputs, targets)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_classes": 2}, r"train labels span 0 .. 2; expected 0 .. 1"),
        ({"test": Samples(torch.zeros(1, 3, 2, 2), torch.tensor([3]))}, "test labels span 3"),
        (
            {"test": Samples(torch.zeros(1, 5), torch.tensor([0]))},
            r"train samples are \(3, 2, 2\), test samples \(5,\)",
        ),
        ({"mean": None}, "both mean and std"),
        ({"mean": (0.5,)}, "one number for each of 3 channels"),
        ({"std": (1.0, 0.0, 1.0)}, "positive"),
        ({"users": torch.zeros(3)}, "one user for each of 12"),
    ],
)
def test_bad_datasets(changes, message):
    with pytest.raises(ValueError, match=message):
        dataset(**changes)

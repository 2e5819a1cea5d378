"""Datasets of torch and torchvision: tensors, subsets, images and what cannot be read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, IterableDataset, Subset, TensorDataset, random_split

import fedasd_fast as fa
from fedasd_fast.data import Dataset, PartitionedData, from_torch

X = torch.arange(40.0).view(20, 2)
Y = torch.arange(20) % 4


class Pictures(torch.utils.data.Dataset[Any]):
    """As torchvision's datasets without a transform: a PIL image and an int."""

    classes = ("cat", "dog", "fox")

    def __init__(self, pixels: np.ndarray[Any, Any], mode: str | None = None) -> None:
        self.pixels, self.mode = pixels, mode
        self.reads = 0

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        image = pytest.importorskip("PIL.Image").fromarray(self.pixels[row])
        self.reads += 1
        return image.convert(self.mode) if self.mode else image, row % 2


def test_one_dataset() -> None:
    data = from_torch(TensorDataset(X, Y), test=Subset(TensorDataset(X, Y), [3, 1]))
    assert isinstance(data, Dataset)
    assert torch.equal(data.train.inputs, X)
    assert torch.equal(data.train.targets, Y)
    assert torch.equal(data.test.inputs, X[[3, 1]])
    read = from_torch(ConcatDataset([TensorDataset(X, Y), TensorDataset(X, Y)]), users=[0] * 20 + [1] * 20)
    assert isinstance(read, PartitionedData)
    assert all(torch.equal(read.client(k).inputs, X) for k in range(2))


def test_subsets_are_clients() -> None:
    parts = random_split(TensorDataset(X, Y), [5, 12, 3], torch.Generator().manual_seed(0))
    data = from_torch(list(parts))
    assert isinstance(data, PartitionedData)
    assert data.sizes.tolist() == [5, 12, 3]
    for k, part in enumerate(parts):
        assert torch.equal(data.client(k).inputs, X[part.indices])
        assert torch.equal(data.client(k).targets, Y[part.indices])
    result = fa.simulate(
        dict(rounds=1, participation=1.0, executor="serial", model="logistic", model_args={}), data=data
    )
    assert result.metrics[-1]["client_updates"] == 3


def test_subsets_of_several_datasets_with_tests() -> None:
    one, other = TensorDataset(X, Y), TensorDataset(X + 100, Y)
    data = from_torch([Subset(one, [0, 1]), Subset(other, [2])], client_tests=[Subset(one, [5]), Subset(other, [6, 7])])
    assert isinstance(data, PartitionedData)
    assert torch.equal(data.client(1).inputs, X[2:3] + 100)
    found = data.client_test(1)
    assert found is not None
    assert torch.equal(found.inputs, X[6:8] + 100)
    assert len(data.test) == 3


def test_pictures() -> None:
    pixels = np.random.default_rng(0).integers(256, size=(6, 5, 4, 3), dtype=np.uint8)
    pictures = Pictures(pixels)
    data = from_torch([Subset(pictures, [0, 4]), Subset(pictures, [4, 1, 0])], mean=(0.5,) * 3, std=(0.25,) * 3)
    assert isinstance(data, PartitionedData)
    assert pictures.reads == 3  # shared rows once, others never
    assert data.num_classes == 3
    assert torch.equal(data.client(1).inputs, torch.from_numpy(pixels[[4, 1, 0]]).permute(0, 3, 1, 2))
    grey = from_torch(Pictures(pixels, "L"))
    assert isinstance(grey, Dataset)
    assert grey.train.inputs.shape == (6, 1, 5, 4)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(())


class Dicts(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, row: int) -> Any:
        return {"x": X[row]}


class Uneven(Dicts):
    def __getitem__(self, row: int) -> Any:
        return X[row, : row + 1], 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: from_torch(Stream()), "a Stream has no length; expected a dataset that can be indexed"),
        (lambda: from_torch(Dicts()), r"sample 0 is a dict; expected a pair \(input, label\)"),
        (lambda: from_torch(Uneven()), r"sample 1 has shape \(2,\), sample 0 \(1,\).*resize or crop"),
        (lambda: from_torch([]), "there are no clients"),
        (lambda: from_torch([TensorDataset(X, Y)], users=Y), "divided already"),
        (lambda: from_torch(TensorDataset(X, Y), client_tests=[TensorDataset(X, Y)]), "pass a list of datasets"),
        (lambda: from_torch(Pictures(np.zeros((2, 4, 4, 3), np.uint8), "P")), "mode 'P'; expected L, RGB, RGBA"),
    ],
)
def test_errors(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()

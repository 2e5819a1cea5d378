"""Datasets of the real package `datasets`, made here."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedasd_fast.data import Dataset, PartitionedData, from_huggingface

datasets = pytest.importorskip("datasets")


def test_images_with_users() -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(256, size=(4, 5, 6, 3), dtype=np.uint8)
    features = datasets.Features(
        image=datasets.Image(), label=datasets.ClassLabel(names=["a", "b", "c"]), user=datasets.Value("string")
    )
    columns = {"image": [image.fromarray(p) for p in pixels], "label": [0, 1, 0, 1], "user": list("yxyx")}
    made = datasets.Dataset.from_dict(columns, features=features)
    data = from_huggingface(datasets.DatasetDict(train=made, test=made), users="user")
    assert isinstance(data, PartitionedData)
    assert data.num_classes == 3
    assert data.client_names == ("x", "y")
    assert torch.equal(data.client(0).inputs, torch.from_numpy(pixels[[1, 3]]).permute(0, 3, 1, 2))
    assert len(data.test) == 4


def test_numbers() -> None:
    made = datasets.Dataset.from_dict({"x": [[1.0, 2.0], [3.0, 4.0]], "y": [0, 1]})
    data = from_huggingface(made, inputs="x", label="y")
    assert isinstance(data, Dataset)
    assert data.train.inputs.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    with pytest.raises(ValueError, match="there is no column 'image'; columns are x, y"):
        from_huggingface(made)

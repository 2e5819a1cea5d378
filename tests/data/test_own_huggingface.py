"""Datasets of the real package `datasets`, made here."""

from __future__ import annotations

import re
from pathlib import Path

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


def test_token_ids_and_tests_of_each_user() -> None:
    columns = {"tokens": [[1, 2, 3], [3, 2, 1], [0, 0, 1]], "label": [0, 1, 1], "user": ["b", "a", "b"]}
    made = datasets.Dataset.from_dict(columns)
    splits = datasets.DatasetDict(train=made, test=made.select([0, 1]))
    data = from_huggingface(splits, inputs="tokens", users="user", client_tests=True, num_classes=3)
    assert isinstance(data, PartitionedData)
    assert data.num_classes == 3
    assert data.client(1).inputs.tolist() == [[1, 2, 3], [0, 0, 1]]
    tests = [data.client_test(k) for k in range(2)]
    assert [found.inputs.tolist() for found in tests if found is not None] == [[[3, 2, 1]], [[1, 2, 3]]]
    with pytest.raises(ValueError, match="needs a test split and `users`"):
        from_huggingface(made, inputs="tokens", client_tests=True)


def test_the_block_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what the blocks before it made."""
    monkeypatch.chdir(tmp_path)
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "own-data.md").read_text()
    first, second = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)[:2]
    (block,) = re.findall(r"```py\n(.*?)```", guide, re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(first + second + block, "own-data.md", "exec", dont_inherit=True), names)
    data = names["data"]
    assert isinstance(data, PartitionedData)
    assert data.num_clients == 30

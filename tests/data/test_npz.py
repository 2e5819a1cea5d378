"""The user's own arrays in an .npz file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedasd_fast.data import DataError, DatasetNotFound, load_dataset

from .layouts import arguments, pixels


def save(folder: Path, **changes: Any) -> Path:
    content = {key: value for key, value in arguments(**changes).items() if value is not None}
    np.savez(folder / "femnist.npz", **content)
    return folder


def test_images_with_users(tmp_path: Path) -> None:
    save(tmp_path, num_classes=62)
    data, expected = load_dataset("femnist", tmp_path), arguments()
    assert torch.equal(data.train.inputs[:, 0], torch.from_numpy(expected["train_x"]))
    assert data.train.inputs.shape == (9, 1, 28, 28)
    assert data.users is not None
    assert data.users.tolist() == [1, 0, 2] * 3  # b, a, c
    assert data.num_classes == 62
    assert data.mean is not None
    assert data.mean[0] == pytest.approx((expected["train_x"] / 255).mean(), abs=1e-12)
    assert data.std is not None
    assert data.std[0] == pytest.approx((expected["train_x"] / 255).std(), abs=1e-12)


def test_features_by_path(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(9, 5))
    save(tmp_path, train_x=x, test_x=x[:2].astype(np.float16), train_users=None)
    (tmp_path / "femnist.npz").rename(tmp_path / "mine.npz")
    data = load_dataset("npz", tmp_path, path="mine.npz")
    assert data.train.inputs.dtype == torch.float32
    assert torch.equal(data.train.inputs, torch.from_numpy(x.astype(np.float32)))
    assert (data.num_classes, data.mean, data.users) == (3, None, None)


def test_own_normalisation(tmp_path: Path) -> None:
    save(tmp_path, train_x=pixels(9, 3, 4, 4), test_x=pixels(2, 3, 4, 4), mean=[0.1, 0.2, 0.3], std=[1.0, 2.0, 3.0])
    data = load_dataset("femnist", tmp_path)
    assert (data.mean, data.std) == ((0.1, 0.2, 0.3), (1.0, 2.0, 3.0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test_y": None}, "has no array test_y"),
        ({"trian_users": np.zeros(9)}, "unknown array trian_users; did you mean train_users"),
        ({"train_y": np.zeros(8, int)}, "has 9 train_x and 8 train_y"),
        ({"train_y": np.zeros(9)}, "train_y is float64 [9]; expected whole numbers"),
        ({"train_y": -np.ones(9, int)}, "labels -1 .. -1; expected 0 .. 2"),
        ({"num_classes": 2}, "labels 0 .. 2; expected 0 .. 1"),
        ({"train_x": pixels(9, 28, 28, 3)}, "x.transpose(0, 3, 1, 2)"),
        ({"train_x": np.zeros((9, 4), int)}, "train_x is int64 [9, 4]"),
        ({"train_x": np.full((9, 4), np.nan)}, "NaN"),
        ({"train_x": pixels(9, 27, 27)}, "train_x is uint8 (1, 27, 27), test_x uint8 (1, 28, 28)"),
        ({"train_users": np.zeros(3, int)}, "train_users is int64 [3]; expected 9"),
        ({"train_users": np.zeros(9)}, "train_users is float64 [9]"),
        ({"mean": [0.5]}, "only one of mean and std"),
        ({"mean": [0.5], "std": [0.0]}, "std positive"),
        ({"train_y": np.array([None] * 9)}, "plain arrays"),  # would be a pickle
    ],
)
def test_wrong_arrays(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    save(tmp_path, **changes)
    with pytest.raises(DataError, match=r"femnist\.npz") as caught:
        load_dataset("femnist", tmp_path)
    assert message in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"garbage", None])
def test_damaged_file(tmp_path: Path, content: bytes | None) -> None:
    path = save(tmp_path) / "femnist.npz"
    path.write_bytes(path.read_bytes()[:-50] if content is None else content)
    with pytest.raises(DataError, match=r"femnist\.npz is not a readable \.npz file"):
        load_dataset("femnist", tmp_path)


def test_not_there(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFound, match=r"femnist\.npz(.|\n)*LEAF"):
        load_dataset("femnist", tmp_path)
    with pytest.raises(DatasetNotFound, match=r"dataset_args\.path"):
        load_dataset("npz", tmp_path)
    with pytest.raises(DatasetNotFound, match=r"mine\.npz"):
        load_dataset("npz", tmp_path, path="mine.npz")

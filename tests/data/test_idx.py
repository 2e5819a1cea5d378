"""MNIST and Fashion-MNIST: idx files, packed or not."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from fedasd_fast.data import DataError, load_dataset
from fedasd_fast.data.idx import parse

from .layouts import idx, mnist, pixels


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("name", "place"), [("mnist", "mnist"), ("fashionmnist", "FashionMNIST/raw")])
def test_reads(tmp_path: Path, name: str, place: str, packed: bool) -> None:
    x, y = mnist(tmp_path / place, packed)
    data = load_dataset(name, tmp_path)
    assert torch.equal(data.train.inputs, torch.from_numpy(x)[:, None])
    assert data.test.targets.tolist() == y.tolist()
    assert data.num_classes == 10
    assert data.mean == ((0.1307,) if name == "mnist" else (0.2860,))


def test_other_spelling(tmp_path: Path) -> None:
    x, _ = mnist(tmp_path / "mnist")
    for path in list((tmp_path / "mnist").iterdir()):
        path.rename(path.with_name(path.name.replace("-idx", ".idx")))
    assert torch.equal(load_dataset("mnist", tmp_path).train.inputs[:, 0], torch.from_numpy(x))


def test_damaged_files(tmp_path: Path) -> None:
    mnist(tmp_path / "mnist", packed=True)
    labels = tmp_path / "mnist" / "train-labels-idx1-ubyte.gz"
    good = labels.read_bytes()
    for content, message in (
        (good[:-3], "damaged or incomplete"),
        (b"<html>not found</html>", "damaged or incomplete"),
        (gzip.compress(b"\0\0"), "begins with '0000'"),
        (idx(pixels(12, 2), packed=True), "begins with '00000802'; expected '00000801'"),
        (idx(np.zeros(11, np.uint8), packed=True), "12 images, but"),
        (idx(np.full(12, 10, np.uint8), packed=True), "labels 10 .. 10; expected 0 .. 9"),
    ):
        labels.write_bytes(content)
        with pytest.raises(DataError, match=r"train-labels-idx1-ubyte\.gz") as caught:
            load_dataset("mnist", tmp_path)
        assert message in str(caught.value)
    labels.unlink()
    with pytest.raises(DataError, match=r"train-labels-idx1-ubyte\.gz is missing"):
        load_dataset("mnist", tmp_path)


@pytest.mark.parametrize("change", [-1, 1])
def test_length_must_fit_the_header(change: int) -> None:
    content = idx(pixels(3, 5, 7))
    content = content[:-1] if change < 0 else content + b"\0"
    with pytest.raises(DataError, match=rf"has {105 + change} values; its header says \[3, 5, 7\], which is 105"):
        parse(content, 3, "file")


def test_enormous_header_needs_no_memory() -> None:
    with pytest.raises(DataError, match="4294967295, 4294967295, 4294967295"):
        parse(bytes([0, 0, 8, 3]) + b"\xff" * 12, 3, "file")


def test_real(tmp_path: Path) -> None:
    folder = Path("/usr/share/datasets/fashion-mnist")
    if not folder.exists():
        pytest.skip("the Debian package dataset-fashion-mnist is not installed")
    data = load_dataset("fashionmnist", tmp_path, path=str(folder))
    assert data.train.inputs.shape == (60_000, 1, 28, 28)
    assert data.train.targets.bincount().tolist() == [6000] * 10
    assert data.test.targets.bincount().tolist() == [1000] * 10
    assert data.train.inputs.double().mean().item() / 255 == pytest.approx(0.2860, abs=1e-4)

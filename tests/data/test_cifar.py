"""CIFAR: both published formats, archives, malicious pickles and damaged files; the real files where present."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedasd_fast.data import DataError, load_dataset
from fedasd_fast.data.cifar_pickle import load

from .layouts import binary, cifar10_python, cifar100_python, pixels, published_pickle, real, tar_of


def test_published_pickles(tmp_path: Path) -> None:
    x, y = cifar10_python(tmp_path / "cifar-10-batches-py")
    data = load_dataset("cifar10", tmp_path)
    assert torch.equal(data.train.inputs, torch.from_numpy(x))
    assert data.train.targets.tolist() == y
    assert torch.equal(data.test.inputs, torch.from_numpy(x[:4]))
    assert (data.num_classes, data.users) == (10, None)
    assert (data.mean, data.std) == ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262))


def test_pickles_of_python_3(tmp_path: Path) -> None:
    x, y = cifar100_python(tmp_path / "cifar-100-python")
    data = load_dataset("cifar100", tmp_path)
    assert torch.equal(data.train.inputs, torch.from_numpy(x))
    assert data.test.targets.tolist() == y
    assert (data.mean, data.std) == ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))


@pytest.mark.parametrize("archive", [False, True])
def test_binary(tmp_path: Path, archive: bool) -> None:
    x = pixels(3, 3, 32, 32)
    ten, hundred = tmp_path / "cifar-10-batches-bin", tmp_path / "cifar-100-binary"
    binary(ten, (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"), x, [[7], [0], [9]])
    binary(hundred, ("train.bin", "test.bin"), x, [[1, 99], [0, 0], [19, 42]])  # coarse, fine
    if archive:
        tar_of(ten, tmp_path / "cifar-10-binary.tar.gz")
        tar_of(hundred, tmp_path / "cifar-100-binary.tar.gz")
        ten.rename(tmp_path / "elsewhere-10")
        hundred.rename(tmp_path / "elsewhere-100")
    data = load_dataset("cifar10", tmp_path)
    assert torch.equal(data.train.inputs, torch.from_numpy(np.tile(x, (5, 1, 1, 1))))
    assert data.test.targets.tolist() == [7, 0, 9]
    assert load_dataset("cifar100", tmp_path).train.targets.tolist() == [99, 0, 42]


def test_archive_is_the_folder(tmp_path: Path) -> None:
    cifar10_python(tmp_path / "a" / "cifar-10-batches-py")
    (tmp_path / "b").mkdir()
    archive = tar_of(tmp_path / "a" / "cifar-10-batches-py", tmp_path / "b" / "cifar-10-python.tar.gz")
    one, other = load_dataset("cifar10", tmp_path / "a"), load_dataset("cifar10", tmp_path / "b")
    assert torch.equal(one.train.inputs, other.train.inputs)
    assert torch.equal(one.test.targets, other.test.targets)
    assert sorted(os.listdir(tmp_path / "b")) == [".fedasd-cache", archive.name]  # nothing is unpacked


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.path), "w")


@pytest.mark.parametrize("protocol", range(6))
def test_hostile_pickle_runs_nothing(tmp_path: Path, protocol: int) -> None:
    made = tmp_path / "made"
    content = pickle.dumps({"data": Evil(made), "labels": []}, protocol=protocol)
    with pytest.raises(DataError, match=r"refers to (io|_io)\.open.*nothing was run"):
        load(content, "data_batch_1")
    assert not made.exists()
    pickle.loads(content)["data"].close()
    assert made.exists()  # the attack itself works


@pytest.mark.parametrize(
    ("module", "name"),
    [("os", "system"), ("builtins", "eval"), ("__builtin__", "getattr"), ("numpy", "load"), ("numpy.core", "records")],
)
def test_forbidden_names(module: str, name: str) -> None:
    with pytest.raises(DataError, match=f"{module}.{name}"):
        load(f"c{module}\n{name}\n(S'x'\ntR.".encode(), "file")


@pytest.mark.parametrize("dtype", [np.float32, object, np.int64])
def test_only_bytes_in_arrays(dtype: Any) -> None:
    with pytest.raises(DataError, match="expected uint8"):
        load(pickle.dumps({"data": np.zeros(4, dtype)}, protocol=2), "file")


@given(st.binary(max_size=200))
def test_garbage_is_a_data_error(content: bytes) -> None:
    with contextlib.suppress(DataError):  # any other error fails
        load(content, "the file")


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    content = published_pickle(pixels(1, 3, 32, 32), [3])
    for length in (*range(0, 200, 7), len(content) // 2, len(content) - 1):
        with pytest.raises(DataError, match="damaged or incomplete"):
            load(content[:length], "data_batch_1")


def test_wrong_files(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    cifar10_python(folder)
    bad = folder / "data_batch_3"
    for content, message in (
        (published_pickle(pixels(2, 3, 32, 32), [1, 10]), "labels 1 .. 10; expected 0 .. 9"),
        (published_pickle(pixels(2, 3, 32, 32), [1]), "no list 'labels' of 2 labels"),
        (published_pickle(pixels(2, 3, 32, 32), [1, 2], b"fine_labels"), "other CIFAR dataset"),
        (pickle.dumps({"labels": [1]}), "data of shape None"),
        (pickle.dumps([1]), "holds a list"),
    ):
        bad.write_bytes(content)
        with pytest.raises(DataError, match=r"data_batch_3.*") as caught:
            load_dataset("cifar10", tmp_path)
        assert message in str(caught.value)
    bad.unlink()
    with pytest.raises(DataError, match="data_batch_3 is missing"):
        load_dataset("cifar10", tmp_path)


def test_damaged_binary_and_archive(tmp_path: Path) -> None:
    binary(tmp_path / "cifar-100-binary", ("train.bin", "test.bin"), pixels(2, 3, 32, 32), [[0, 1], [0, 2]])
    archive = tar_of(tmp_path / "cifar-100-binary", tmp_path / "cifar-100-binary.tar.gz")
    train = tmp_path / "cifar-100-binary" / "train.bin"
    train.write_bytes(train.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"train.bin has 6147 bytes; expected records of 3074"):
        load_dataset("cifar100", tmp_path)
    (tmp_path / "cifar-100-binary").rename(tmp_path / "elsewhere")
    whole = archive.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:-4], whole[:-6] + b"\0\0" + whole[-4:], b"no archive"):
        archive.write_bytes(content)
        with pytest.raises(DataError, match=r"cifar-100-binary.tar.gz is damaged or incomplete"):
            load_dataset("cifar100", tmp_path)


@pytest.mark.parametrize(
    ("name", "place", "classes", "train", "test"),
    [
        ("cifar10", "cifar-10-batches-py", 10, "973ef2abb5897efc", "2c33b053d1cd726a"),
        ("cifar100", "cifar-100-python", 100, "3f04bb596c34a28a", "9f0797cda23af323"),
    ],
)
def test_real(name: str, place: str, classes: int, train: str, test: str) -> None:
    data = load_dataset(name, real(place))
    for samples, n, checksum in ((data.train, 50_000, train), (data.test, 10_000, test)):
        assert samples.inputs.shape == (n, 3, 32, 32)
        assert torch.equal(samples.targets.bincount(), torch.full((classes,), n // classes))
        found = hashlib.sha256(samples.inputs.numpy().tobytes() + samples.targets.numpy().tobytes())
        assert found.hexdigest()[:16] == checksum

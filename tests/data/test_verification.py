"""`data check` reads what is there, not what a cache remembers; incomplete datasets are called so."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from fedasd_fast.data import DataError, load_dataset, status
from fedasd_fast.data.catalogue import CATALOGUE
from fedasd_fast.data.verification import verify

from .layouts import cifar10_python, cifar100_python, mnist, tinyimagenet


def publish(monkeypatch: pytest.MonkeyPatch, name: str, folder: Path) -> None:
    """From now on the files in this folder are the published ones."""
    known = {file: hashlib.md5((folder / file).read_bytes()).hexdigest() for file in CATALOGUE[name].unpacked}
    monkeypatch.setitem(CATALOGUE, name, replace(CATALOGUE[name], unpacked=known))


def test_unpacked_files_are_compared_with_their_checksums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    cifar10_python(folder)
    publish(monkeypatch, "cifar10", folder)
    found = verify("cifar10", tmp_path)
    assert (found.train, found.test, found.num_classes, found.shape, found.checksums) == (20, 4, 10, (3, 32, 32), 6)
    assert found.notices == ("20 training and 4 test samples; the published dataset has 50000 and 10000",)
    assert not (tmp_path / ".fedasd-cache").exists()

    load_dataset("cifar10", tmp_path)  # fills the cache
    batch, content = folder / "data_batch_3", bytearray((folder / "data_batch_3").read_bytes())
    times = batch.stat().st_atime_ns, batch.stat().st_mtime_ns
    content[-1000] ^= 1  # a pixel
    batch.write_bytes(content)
    os.utime(batch, ns=times)  # as if the disk had done it
    load_dataset("cifar10", tmp_path)  # the cache does not notice
    with pytest.raises(DataError, match=r"data_batch_3 has md5 .* not the original; .*`fedasd data get cifar10`"):
        verify("cifar10", tmp_path)


def test_without_checksums_every_file_is_read(tmp_path: Path) -> None:
    mnist(tmp_path / "mnist")
    assert verify("mnist", tmp_path).checksums == 0
    file = next((tmp_path / "mnist").glob("train-images*"))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DataError, match=file.name):
        verify("mnist", tmp_path)


def test_a_part_of_a_dataset_is_not_a_dataset(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-python"
    cifar100_python(folder)
    assert status("cifar100", tmp_path).present
    (folder / "test").unlink()
    found = status("cifar100", tmp_path)
    assert (found.present, found.lacks, found.where) == (False, ("test",), folder)
    with pytest.raises(DataError, match=r"cifar100 is incomplete: .*cifar-100-python lacks test; remove it and run"):
        verify("cifar100", tmp_path)
    archive = tmp_path / "cifar-100-python.tar.gz"
    archive.write_bytes(bytes(1000))
    assert status("cifar100", tmp_path).lacks == ("test",)
    with open(archive, "ab") as file:
        file.truncate(169_001_437)  # its full length
    assert status("cifar100", tmp_path).where == archive  # better than the incomplete directory
    (tmp_path / "mnist").mkdir()
    assert len(status("mnist", tmp_path).lacks) == 4
    assert status("tinyimagenet", tmp_path).where is None
    tinyimagenet(tmp_path / "tiny-imagenet-200")
    found = status("tinyimagenet", tmp_path)
    assert (found.present, found.part) == (True, "3 of 200 classes")

"""Datasets by name, the errors for absent ones, and the federated data of a configuration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import Config, from_dict
from fedasd_fast.data import (
    DatasetNotFound,
    PartitionedData,
    SyntheticData,
    data_directory,
    federate,
    list_datasets,
    load_dataset,
    status,
)
from fedasd_fast.data.catalogue import CATALOGUE

from .layouts import arguments, cifar10_python, mnist, tar_of


def test_missing_dataset_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFound) as caught:
        load_dataset("cifar100", tmp_path)
    message = str(caught.value)
    for place in ("cifar-100-python", "cifar-100-binary", "cifar-100-python.tar.gz", "cifar-100-binary.tar.gz"):
        assert f"{tmp_path / place}\n" in message
    assert f"fedasd data get cifar100 --data-dir {tmp_path}\n" in message
    assert "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz" in message
    assert isinstance(caught.value, ConfigError)
    assert isinstance(caught.value, FileNotFoundError)
    with pytest.raises(DatasetNotFound, match=r"image-net\.org"):
        load_dataset("imagenet100", tmp_path)


def test_unknown_names_and_options(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"dataset = 'cifar_100'; did you mean cifar100"):
        load_dataset("cifar_100", tmp_path)
    with pytest.raises(ConfigError, match=r"dataset_args\.imagesize; did you mean image_size"):
        load_dataset("tinyimagenet", tmp_path, imagesize=32)
    with pytest.raises(ConfigError, match=r"unknown setting dataset_args\.image_size; expected one of path"):
        load_dataset("cifar10", tmp_path, image_size=32)
    with pytest.raises(ConfigError, match=r"dataset_args\.image_size = 'big'; expected a whole number"):
        load_dataset("tinyimagenet", tmp_path, image_size="big")
    with pytest.raises(ConfigError, match="unknown setting"):
        load_dataset("digits", tmp_path, path="x")
    with pytest.raises(ConfigError, match="federate"):
        load_dataset("synthetic")


def test_where_data_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDASD_DATA", str(tmp_path / "a"))
    assert data_directory() == tmp_path / "a"
    assert data_directory(tmp_path / "b") == tmp_path / "b"
    monkeypatch.delenv("FEDASD_DATA")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "c"))
    assert data_directory() == tmp_path / "c" / "fedasd_fast"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_directory("~/d") == tmp_path / "d"
    assert data_directory() == tmp_path / ".local" / "share" / "fedasd_fast"


def test_data_dir_may_be_the_folder_itself(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    cifar10_python(folder)
    archive = tar_of(folder, tmp_path / "mine.tar.gz")
    for dataset in (load_dataset("cifar10", folder), load_dataset("cifar10", tmp_path / "x", path=str(archive))):
        assert len(dataset.train) == 20


def test_incomplete_copy_is_mentioned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mnist(tmp_path / "mnist")
    load_dataset("mnist", tmp_path)
    assert "mnist: 12 training and 12 test samples; the published dataset has 60000 and 10000" in caplog.text


def test_listing(tmp_path: Path) -> None:
    mnist(tmp_path / "mnist")
    found = {entry.name: entry for entry in list_datasets(tmp_path)}
    assert list(found) == list(CATALOGUE)
    assert found["mnist"].present
    assert found["mnist"].where == tmp_path / "mnist"
    assert found["mnist"].size == sum(path.stat().st_size for path in (tmp_path / "mnist").iterdir())
    assert not found["cifar100"].present
    assert found["cifar100"].how == f"fedasd data get cifar100 --data-dir {tmp_path}"
    assert found["synthetic"].present
    assert all(entry.licence and entry.description and entry.how for entry in found.values())
    with pytest.raises(ConfigError, match="did you mean mnist"):
        status("minst", tmp_path)


def test_normalisation_is_as_in_the_experiments() -> None:
    """The numbers the reproduced runs were made with; a digit less or more is another experiment."""
    assert {name: entry.normalisation for name, entry in CATALOGUE.items() if entry.normalisation} == {
        "cifar10": ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262)),
        "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
        "tinyimagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        "imagenet100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
        "imagefolder": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        "fashionmnist": ((0.2860,), (0.3530,)),
        "mnist": ((0.1307,), (0.3081,)),
        "digits": ((0.3052,), (0.3760,)),
    }


def test_federate_digits() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    config = Config(dataset="digits", clients=30, partition="dirichlet_0.3", seed=5)
    data = federate(config)
    assert isinstance(data, PartitionedData)
    assert data.sizes.tolist() == [1442 // 30] * 30
    assert (data.input_shape, data.num_classes, data.mean) == ((1, 8, 8), 10, (0.3052,))
    again, other = federate(config), federate(config.replace(seed=6))
    assert all(torch.equal(data.client(k).inputs, again.client(k).inputs) for k in range(30))
    assert not all(torch.equal(data.client(k).inputs, other.client(k).inputs) for k in range(30))
    uneven = federate(config.replace(size_sigma=1.0))
    assert len(set(uneven.sizes.tolist())) > 5


def test_federate_by_users(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", **arguments())
    settings = dict(dataset="npz", data_dir=str(tmp_path), dataset_args={"path": "mine.npz"}, partition="natural")
    data = federate(from_dict({**settings, "clients": 3}))
    assert data.client(0).targets.tolist() == [1, 1, 1]  # user a wrote every second of three
    np.savez(tmp_path / "mine.npz", **{key: value for key, value in arguments().items() if key != "train_users"})
    with pytest.raises(ConfigError, match=r"partition = natural, but npz has no user ids"):
        federate(from_dict({**settings, "clients": 3}))


def test_federate_synthetic() -> None:
    data = federate(from_dict({"dataset": "synthetic", "clients": 7, "synthetic": {"classes": 4}}))
    assert isinstance(data, SyntheticData)
    assert (data.num_clients, data.num_classes) == (7, 4)
    with pytest.raises(ConfigError, match=r"use its settings synthetic\.\*"):
        federate(from_dict({"dataset": "synthetic", "dataset_args": {"classes": 4}}))

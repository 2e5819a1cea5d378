"""Loads datasets by name, and the federated data of a configuration."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any

import torch

from ..common.randomness import Stream, generator
from ..common.schema import ConfigError, build
from ..config import Config
from .archives import open_files
from .cache import cached
from .catalogue import DatasetEntry, find_entry
from .digits import read_digits
from .directory import data_directory
from .federated import Dataset, FederatedData, PartitionedData, Samples
from .own_named import make_named
from .own_types import advice
from .partition import partition
from .reader import DecodeContext, DecodedArrays, Progress
from .synthetic import SyntheticData
from .text import included_text

logger = logging.getLogger(__name__)
OPTIONS_AFTER_DECODING = ("path", "mean", "std")  # which the decoded arrays do not depend on


def load_dataset(
    name: str, data_dir: str | Path | None = None, *, progress: Progress | None = None, **args: Any
) -> Dataset:
    """A dataset by its name in the catalogue; `args` are its options (path, image_size, ...).

    `data_dir` is by default FEDASD_DATA of the environment, else ~/.local/share/fedasd_fast.  Images are decoded once,
    then mapped from a cache; `progress(done, total)` is called while they are decoded.
    """
    entry = find_entry(name)
    if name == "synthetic":
        raise ConfigError("dataset = 'synthetic' is generated client by client: use federate(config) or SyntheticData")
    options = build(entry.options, args, "dataset_args")
    arrays = read_digits() if name == "digits" else _from_files(entry, data_directory(data_dir), options, progress)
    for notice in entry.notices(arrays):
        logger.warning("%s: %s", name, notice)
    mean, std = _normalisation(entry, options, arrays)
    return Dataset(
        name,
        train=Samples(torch.from_numpy(arrays.train_x), torch.from_numpy(arrays.train_y)),
        test=Samples(torch.from_numpy(arrays.test_x), torch.from_numpy(arrays.test_y)),
        num_classes=arrays.num_classes,
        mean=mean,
        std=std,
        users=None if arrays.users is None else torch.from_numpy(arrays.users),
    )


def federate(config: Config, *, progress: Progress | None = None) -> FederatedData:
    """The clients' data, a function of the data settings and the seed of `config`."""
    if config.dataset == "synthetic":
        if config.dataset_args:
            raise ConfigError(
                f"dataset_args = {config.dataset_args} with dataset = synthetic; use its settings synthetic.* instead"
            )
        if not config.clients:
            raise ConfigError("clients = 0, but synthetic data are made for any number; set clients")
        return SyntheticData(
            config.synthetic, config.clients, config.partition, config.seed, config.size_sigma, config.random_streams
        )
    if ":" in config.dataset:
        return as_federated(make_named(config.dataset, config.dataset_args, config.data_dir), config)
    dataset = load_dataset(config.dataset, config.data_dir, progress=progress, **config.dataset_args)
    return divide(dataset, config)


def as_federated(data: FederatedData | Dataset, config: Config) -> FederatedData:
    """The caller's own data, divided as the configuration says unless they already are."""
    if isinstance(data, FederatedData):
        return data
    if isinstance(data, Dataset):
        return divide(data, config)
    raise TypeError(f"data is a {type(data).__name__}; expected FederatedData or a Dataset: pass {advice(data)}")


def divide(dataset: Dataset, config: Config) -> PartitionedData:
    """Among clients, as the configuration says; clients = 0: as many as the dataset has users."""
    if config.partition == "natural" and dataset.users is None:
        raise ConfigError(
            f"partition = natural, but {dataset.name} has no user ids; use dirichlet_<delta>, "
            "iid or shards_<n>, or a dataset with users: femnist, or npz with train_users"
        )
    labels = dataset.train.targets
    if labels.dim() == 2:
        if config.partition not in ("natural", "iid"):
            raise ConfigError(
                f"partition = {config.partition}, but {dataset.name} has sequences, which are of no class; use natural "
                "(with users) or iid"
            )
        labels = torch.zeros(len(labels), dtype=torch.int64)  # iid looks at nothing else
    parts = partition(
        labels.numpy(),
        dataset.num_classes,
        config.clients or _count_clients(dataset, config.partition),
        config.partition,
        generator(config.seed, Stream.PARTITION),
        users=None if dataset.users is None else dataset.users.numpy(),
        size_sigma=config.size_sigma,
    )
    return PartitionedData(dataset, parts)


def _count_clients(dataset: Dataset, spec: str) -> int:
    if spec != "natural" or dataset.users is None:
        raise ConfigError(
            f"clients = 0, but {dataset.name} with partition = {spec} can be divided among any number; set clients"
        )
    return len(dataset.users.unique())


def _from_files(entry: DatasetEntry, data_dir: Path, options: Any, progress: Progress | None) -> DecodedArrays:
    assert entry.read is not None
    if entry.name == "text" and options.path is None:
        files = included_text()
    else:
        files = open_files(entry.find(data_dir, options.path))
    read = entry.read
    if not entry.cached:
        return read(files, options, DecodeContext(progress=progress))

    def decode(context: DecodeContext) -> DecodedArrays:
        return read(files, options, context)

    decoding = {key: value for key, value in dataclasses.asdict(options).items() if key not in OPTIONS_AFTER_DECODING}
    return cached(entry.name, files, decoding, data_dir, decode, progress)


def _normalisation(
    entry: DatasetEntry, options: Any, arrays: DecodedArrays
) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    mean, std = getattr(options, "mean", None), getattr(options, "std", None)
    if (mean is None) != (std is None):
        raise ConfigError("dataset_args has only one of mean and std; give both, or neither")
    if mean is not None:
        return mean, std
    if arrays.mean is not None or entry.normalisation is None:
        return arrays.mean, arrays.std
    return entry.normalisation

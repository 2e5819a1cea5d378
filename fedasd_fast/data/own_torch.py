"""Datasets of torch and torchvision as federated data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset, Subset, TensorDataset

from .federated import Dataset, PartitionedData
from .own_arrays import from_arrays, from_clients
from .own_rows import stack
from .own_types import are_samples


def from_torch(
    dataset: TorchDataset[Any] | Sequence[Any],
    *,
    test: TorchDataset[Any] | Sequence[Any] | None = None,
    client_tests: Sequence[TorchDataset[Any]] | None = None,
    users: Any = None,
    parts: Sequence[Any] | None = None,
    num_classes: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    name: str = "own",
) -> Dataset | PartitionedData:
    """A dataset or a list of (input, label), divided as in `from_arrays`; or a list of datasets (`Subset`s), one for
    each client.

    Every sample is read once and kept in memory: a random transform would give one fixed view, so leave augmentation to
    the setting `augment`.  Images without a transform (PIL) become uint8, normalised with `mean` and `std`.
    `client_tests`, only with a list, are test samples of each client.
    """
    held_out = None if test is None else _read(test, "test")
    if not isinstance(dataset, (list, tuple)) or are_samples(dataset):
        if client_tests is not None:
            raise ValueError("client_tests with one dataset; pass a list of datasets, one for each client")
        x, y = _read(dataset, "sample")
        common: dict[str, Any] = dict(num_classes=num_classes or _classes(dataset), mean=mean, std=std, name=name)
        return from_arrays(x, y, test=held_out, users=users, parts=parts, **common)
    if users is not None or parts is not None:
        raise ValueError("a list of datasets is divided already; users and parts are for one dataset")
    if not dataset:
        raise ValueError("there are no clients; expected a list of datasets, one for each client")
    common = dict(num_classes=num_classes or _classes(dataset[0]), mean=mean, std=std, name=name)
    if client_tests is None and (whole := _common_dataset(dataset)) is not None:  # which may overlap: read once
        rows = [np.asarray(subset.indices) for subset in dataset]
        used, places = np.unique(np.concatenate(rows), return_inverse=True)
        x, y = _read(Subset(whole, used.tolist()), "sample")
        own = np.split(places, np.cumsum([len(part) for part in rows])[:-1])
        return from_arrays(x, y, test=held_out, parts=own, **common)
    tests = (
        None if client_tests is None else [_read(each, f"test of client {k}:") for k, each in enumerate(client_tests)]
    )
    clients = [_read(each, f"client {k}: sample") for k, each in enumerate(dataset)]
    return from_clients(clients, test=held_out, client_tests=tests, **common)


def _read(dataset: Any, where: str) -> tuple[Tensor, Tensor]:
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise TypeError(f"{where}: a {type(dataset).__name__} has no length; expected a dataset that can be indexed")
    if isinstance(dataset, TensorDataset) and len(dataset.tensors) == 2:
        return dataset.tensors[0], dataset.tensors[1]
    if isinstance(dataset, Subset) and isinstance(dataset.dataset, TensorDataset):
        x, y = _read(dataset.dataset, where)
        rows = torch.as_tensor(np.asarray(dataset.indices, dtype=np.int64))
        return x[rows], y[rows]
    samples = [dataset[row] for row in range(len(dataset))]
    for row, sample in enumerate(samples):
        if not isinstance(sample, (tuple, list)) or len(sample) != 2:
            raise TypeError(f"{where} {row} is a {type(sample).__name__}; expected a pair (input, label)")
    return stack([x for x, _ in samples], where), stack([y for _, y in samples], f"{where} label")


def _classes(dataset: Any) -> int | None:
    """As torchvision's datasets say; labels that no sample has are counted too."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    classes = getattr(dataset, "classes", None)
    return len(classes) if isinstance(classes, (list, tuple)) else None


def _common_dataset(datasets: Sequence[Any]) -> TorchDataset[Any] | None:
    """What all of them are subsets of."""
    if all(isinstance(each, Subset) and each.dataset is datasets[0].dataset for each in datasets):
        return datasets[0].dataset  # type: ignore[no-any-return]
    return None

"""Federated data: the samples of each client, and the common test set.

A population may be far larger than memory: only `sizes` has an entry for every client, and `client(k)` gathers or
generates the samples of one client when they are needed, `cohort(clients)` those of many in one go.  They are functions
of the clients alone, so they are thread-safe.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

IGNORED = -100  # the target of a position that has none: the loss's ignore_index


@dataclass(frozen=True)
class Samples:
    """Inputs and their targets: uint8 images [n, C, H, W], int64 token ids [n, T] or floats [n, ...]; classes [n]."""

    inputs: Tensor  # uint8 [n, C, H, W] images, int64 [n, T] token ids, or floats [n, ...]
    targets: Tensor  # int64 [n]; of token ids also [n, T], one for each position, IGNORED where there is none

    def __post_init__(self) -> None:
        x, y = self.inputs, self.targets  # made for every client and round: messages are formatted only when needed
        if x.dtype not in (torch.uint8, torch.int64) and not x.is_floating_point():
            raise ValueError(
                f"inputs have dtype {x.dtype}; expected uint8 images, int64 token ids (call .long()), or a float"
            )
        if x.dtype == torch.int64 and x.dim() != 2:
            raise ValueError(
                f"int64 inputs have shape {tuple(x.shape)}; expected token ids [n, T] (features are floats: .float())"
            )
        if x.dtype == torch.uint8 and x.dim() != 4:
            raise ValueError(f"uint8 inputs have shape {tuple(x.shape)}; expected images [n, C, H, W]")
        if y.is_floating_point():
            raise ValueError(_no_class_labels(y))
        if y.dtype != torch.int64:
            raise ValueError(f"targets have dtype {y.dtype}; expected int64: call .long()")
        if y.dim() == 2 and (x.dtype != torch.int64 or x.shape != y.shape):
            raise ValueError(
                f"{x.dtype} inputs of shape {tuple(x.shape)} with targets of shape {tuple(y.shape)}; targets [n, T] "
                "need int64 token ids [n, T] as inputs (for one-hot rows call .argmax(1); several labels a sample are "
                "not supported)"
            )
        if x.dim() < 2 or y.dim() not in (1, 2) or x.shape[0] != y.shape[0]:
            raise ValueError(
                f"inputs of shape {tuple(x.shape)} with targets of shape {tuple(y.shape)}; expected [n, ...] with [n]"
            )

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def labels(self) -> int:
        """How many targets there are: samples, or positions that are not ignored."""
        return len(self) if self.targets.dim() == 1 else int((self.targets != IGNORED).sum())

    @property
    def nbytes(self) -> int:
        return self.inputs.nbytes + self.targets.nbytes


def _no_class_labels(y: Tensor) -> str:
    task = "several labels or numbers a sample" if y.dim() > 1 else "regression, perhaps"
    return (
        f"targets have dtype {y.dtype} and shape {tuple(y.shape)} ({task}); only classification is supported, with one "
        "class of 0 .. num_classes - 1 a sample: int64 [n]. For class numbers that happen to be floats call .long(); "
        "for one-hot rows .argmax(1)"
    )


@dataclass(frozen=True)
class Dataset:
    """Training and test samples that are not yet divided among clients; `users` are those of the natural partition."""

    name: str
    train: Samples
    test: Samples
    num_classes: int
    mean: tuple[float, ...] | None = None  # of each channel, of inputs in [0, 1]; None for features
    std: tuple[float, ...] | None = None
    users: Tensor | None = None  # int64 [n_train]: the user of each training sample, for the natural partition

    def __post_init__(self) -> None:
        for part, samples in (("train", self.train), ("test", self.test)):
            if len(samples):
                targets = samples.targets
                if targets.dim() == 2:
                    targets = targets[targets != IGNORED]
                    _require(
                        len(targets) > 0, f"{self.name}: all {part} targets are {IGNORED}; nothing is to be learnt"
                    )
                low, high = int(targets.min()), int(targets.max())
                _require(
                    low >= 0 and high < self.num_classes,
                    f"{self.name}: {part} labels span {low} .. {high}; expected 0 .. {self.num_classes - 1} for "
                    f"num_classes = {self.num_classes}",
                )
        shapes = [tuple(samples.inputs.shape[1:]) for samples in (self.train, self.test)]
        _require(shapes[0] == shapes[1], f"{self.name}: train samples are {shapes[0]}, test samples {shapes[1]}")
        kinds = [(samples.inputs.dtype == torch.int64, samples.targets.dim()) for samples in (self.train, self.test)]
        _require(
            kinds[0] == kinds[1],
            f"{self.name}: train and test differ in their inputs (token ids or not) or targets ([n] or [n, T])",
        )
        for part, samples in (("train", self.train), ("test", self.test)):
            lowest = int(samples.inputs.min()) if kinds[0][0] and samples.inputs.numel() else 0
            _require(
                lowest >= 0,
                f"{self.name}: {part} token ids go down to {lowest}; expected 0 or more (whole numbers are token ids; "
                "features are floats: .astype(np.float32), or .float())",
            )
        _require(
            (self.mean is None) == (self.std is None),
            f"{self.name}: give both mean and std of channels, or neither",
        )
        for label, values in (("mean", self.mean), ("std", self.std)):
            _require(
                values is None or len(values) == shapes[0][0],
                f"{self.name}: {label} = {values}; expected one number for each of {shapes[0][0]} channels",
            )
        _require(self.std is None or min(self.std) > 0, f"{self.name}: std = {self.std}; expected positive numbers")
        _require(
            self.users is None or self.users.shape == self.train.targets.shape[:1],
            f"{self.name}: expected one user for each of {len(self.train)} training samples",
        )


class FederatedData(ABC):
    """The interface that the simulator reads data through."""

    name: str
    num_classes: int
    input_shape: tuple[int, ...]  # of one sample: (C, H, W), or (64,)
    sizes: Tensor  # int64 [K]: samples of each client
    test: Samples
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    @abstractmethod
    def client(self, k: int) -> Samples:
        """The training samples of client k, always the same ones in the same order."""

    def client_test(self, k: int) -> Samples | None:
        """Test samples of client k itself, beside the common test set; None: the data have none for each client."""
        return None

    def cohort(self, clients: NDArray[np.int64]) -> Samples:
        """The training samples of all these clients, one after the other."""
        parts = [self.client(int(k)) for k in clients]
        return Samples(torch.cat([part.inputs for part in parts]), torch.cat([part.targets for part in parts]))

    @property
    def num_clients(self) -> int:
        return len(self.sizes)

    @property
    def is_image(self) -> bool:
        return len(self.input_shape) == 3

    @property
    def positions(self) -> int | None:
        """T if targets are [n, T], a class at each position of a sequence; None if samples have one class each."""
        targets = self.test.targets
        return targets.shape[1] if targets.dim() == 2 else None

    def blank(self, n: int, like: Tensor) -> Tensor:
        """Inputs [n, ...] of zeros as a network gets them, with the device (and for floats the dtype) of `like`."""
        dtype = torch.int64 if self.test.inputs.dtype == torch.int64 else like.dtype
        return torch.zeros((n, *self.input_shape), dtype=dtype, device=like.device)

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Memory held, mapped files included."""

    def label_counts(self, k: int) -> Tensor:
        """How many samples (or positions of sequences) of each class client k has: int64 [num_classes]."""
        return _bincount(self.client(k).targets, self.num_classes)

    def cohort_label_counts(self, clients: NDArray[np.int64]) -> Tensor:
        """How many samples of each class each of these clients has: int64 [len(clients), num_classes]."""
        return torch.stack([self.label_counts(int(k)) for k in clients])

    def _check_client(self, k: int) -> None:
        if not 0 <= k < len(self.sizes):
            raise IndexError(f"client {k} of {self.name}; expected 0 .. {len(self.sizes) - 1}")

    def _has_own(self, cls: type[FederatedData], *methods: str) -> bool:
        """Whether a subclass of `cls` replaces one of these, so that `cls` must not answer for cohorts without it."""
        return any(getattr(type(self), name) is not getattr(cls, name) for name in methods)

    def _check_clients(self, clients: NDArray[np.int64]) -> None:
        if len(clients):
            self._check_client(int(clients.min()))
            self._check_client(int(clients.max()))


class PartitionedData(FederatedData):
    """A dataset whose training samples are partitioned: client k has the rows parts[k].

    Rows may be shared by clients, or left out.  `client_tests` are test samples of each client, `client_names` the
    caller's names of the clients, which messages and analyses number 0, 1, ...
    """

    def __init__(
        self,
        dataset: Dataset,
        parts: Sequence[np.ndarray[Any, Any]],
        client_tests: Sequence[Samples] | None = None,
        client_names: Sequence[str] | None = None,
    ) -> None:
        sizes = np.array([len(part) for part in parts], dtype=np.int64)
        _require(len(sizes) > 0, f"{dataset.name}: there are no clients; expected at least one index array")
        _require(
            bool(sizes.all()),
            f"{dataset.name}: client {int(sizes.argmin())} has no samples; use fewer clients, or drop the empty ones",
        )
        rows = np.concatenate([np.asarray(part) for part in parts])
        _require(rows.dtype.kind in "iu", f"{dataset.name}: indices have dtype {rows.dtype}; expected whole numbers")
        n = len(dataset.train)
        _require(
            int(rows.min()) >= 0 and int(rows.max()) < n,
            f"{dataset.name}: indices span {rows.min()} .. {rows.max()}; expected 0 .. {n - 1}",
        )
        for what, given in (("test sets", client_tests), ("names", client_names)):
            _require(
                given is None or len(given) == len(sizes),
                f"{dataset.name}: {what} of {len(given or ())} clients; expected one for each of {len(sizes)}",
            )
        self.dataset = dataset
        self.client_names = None if client_names is None else tuple(client_names)
        self._client_tests = None if client_tests is None else tuple(client_tests)
        self.name, self.num_classes, self.test = dataset.name, dataset.num_classes, dataset.test
        self.input_shape = tuple(dataset.train.inputs.shape[1:])
        self.mean, self.std = dataset.mean, dataset.std
        self.sizes = torch.from_numpy(sizes)
        self._rows = torch.from_numpy(rows.astype(np.int64, copy=False))
        self._ends = np.cumsum(sizes)

    def client(self, k: int) -> Samples:
        rows, train = self.rows(k), self.dataset.train
        return Samples(train.inputs.index_select(0, rows), train.targets.index_select(0, rows))

    def client_test(self, k: int) -> Samples | None:
        self._check_client(k)
        return None if self._client_tests is None else self._client_tests[k]

    def rows(self, k: int) -> Tensor:
        """The rows of the training set that client k has: int64 [n_k]."""
        self._check_client(k)
        end = int(self._ends[k])
        return self._rows[end - int(self.sizes[k]) : end]

    def cohort(self, clients: NDArray[np.int64]) -> Samples:
        if self._has_own(PartitionedData, "client"):
            return super().cohort(clients)
        rows, train = self._cohort_rows(clients), self.dataset.train
        return Samples(train.inputs.index_select(0, rows), train.targets.index_select(0, rows))

    def cohort_label_counts(self, clients: NDArray[np.int64]) -> Tensor:
        if self._has_own(PartitionedData, "client", "label_counts"):
            return super().cohort_label_counts(clients)
        labels = self.dataset.train.targets.index_select(0, self._cohort_rows(clients))
        return count_labels(labels, self.sizes[torch.from_numpy(clients)], self.num_classes)

    def _cohort_rows(self, clients: NDArray[np.int64]) -> Tensor:
        self._check_clients(clients)
        sizes = self.sizes.numpy()[clients]
        return self._rows[torch.from_numpy(consecutive(self._ends[clients] - sizes, sizes))]

    @property
    def all_rows(self) -> Tensor:
        """The rows of all clients, one client after the other."""
        return self._rows

    def label_counts(self, k: int) -> Tensor:
        return _bincount(self.dataset.train.targets.index_select(0, self.rows(k)), self.num_classes)

    @property
    def nbytes(self) -> int:
        tests = sum(samples.nbytes for samples in self._client_tests or ())
        index = self._rows.nbytes + self.sizes.nbytes + self._ends.nbytes
        return self.dataset.train.nbytes + self.test.nbytes + tests + index


def consecutive(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """start, start + 1, .. of every length, one after the other: [sum of lengths]."""
    ends = np.cumsum(lengths)
    shifts = np.repeat(starts - (ends - lengths), lengths)
    return shifts + np.arange(len(shifts))


def count_labels(labels: Tensor, sizes: Tensor, num_classes: int) -> Tensor:
    """Label counts [K, num_classes] of K clients with `sizes` samples each, one client after the other."""
    owners = torch.arange(len(sizes), device=labels.device).repeat_interleave(sizes.to(labels.device))
    if labels.dim() == 2:
        valid = labels != IGNORED
        owners, labels = owners.unsqueeze(1).expand_as(labels)[valid], labels[valid]
    counts = torch.bincount(owners * num_classes + labels, minlength=len(sizes) * num_classes)
    return counts.view(len(sizes), num_classes)


def _bincount(targets: Tensor, num_classes: int) -> Tensor:
    labels = targets if targets.dim() == 1 else targets[targets != IGNORED]
    return torch.bincount(labels, minlength=num_classes)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)

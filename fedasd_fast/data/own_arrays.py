"""The user's own arrays as federated data: one dataset to divide among clients, or the samples of each client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from .federated import Dataset, PartitionedData, Samples

Pair: TypeAlias = tuple[Any, Any]  # inputs [n, ...] and labels [n]: tensors, numpy arrays or lists
Array: TypeAlias = np.ndarray[Any, Any]


def from_arrays(
    x: Any,
    y: Any,
    *,
    test: Pair | None = None,
    users: Any = None,
    parts: Sequence[Any] | None = None,
    test_users: Any = None,
    num_classes: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    name: str = "own",
) -> Dataset | PartitionedData:
    """Inputs `x` [n, ...] and labels `y` [n], to be passed to `fa.simulate(config, data=...)`.

    Without more, they are divided among clients as the configuration says (partition, clients, size_sigma).  `users`
    [n], ids of any type, makes each user a client, in sorted order; `parts` are the row numbers of each client.
    `test` is the common test set (x, y); without one there is no accuracy.  `test_users` gives each test sample to a
    user as well: `client_test(k)`.  `mean` and `std` are those of the channels of uint8 images, scaled to [0, 1].
    """
    train = to_samples(x, y, "train")
    held_out = _empty_like(train) if test is None else to_samples(*_pair(test, "test"), "test")
    dataset = _dataset(train, held_out, num_classes, mean, std, name)
    if users is not None and parts is not None:
        raise ValueError("users and parts both say which client has which sample; give one of them")
    if users is None and test_users is not None:
        raise ValueError("test_users without users: say whose the training samples are too")
    if parts is not None:
        return PartitionedData(dataset, [np.asarray(part) for part in parts])
    if users is None:
        return dataset
    ids = _column(users, len(train), "users")
    names, owners = np.unique(ids, return_inverse=True)
    tests = None
    if test_users is not None:
        test_ids = _column(test_users, len(held_out), "test_users")
        if len(unknown := np.setdiff1d(test_ids, names)):
            raise ValueError(f"test_users has {unknown[0]!r}, who has no training sample; leave out such test samples")
        tests = [_rows(held_out, np.flatnonzero(test_ids == user)) for user in names]
    return PartitionedData(dataset, _rows_of_each(owners, len(names)), tests, [str(user) for user in names])


def from_clients(
    clients: Mapping[Any, Pair] | Sequence[Pair],
    *,
    test: Pair | None = None,
    client_tests: Mapping[Any, Pair] | Sequence[Pair] | None = None,
    num_classes: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    name: str = "own",
) -> PartitionedData:
    """{name: (x, y)} or a list of (x, y), one for each client, in this order.

    `client_tests` has test samples of each client in the same form: `client_test(k)`.  The common test set is `test`,
    or without it that of all clients together; with neither there is no accuracy.
    """
    names, pairs = _named(clients, "clients")
    if not pairs:
        raise ValueError("there are no clients; expected {name: (x, y)} or a list of (x, y)")
    trained = [to_samples(*pair, f"client {name}") for name, pair in zip(names, pairs, strict=True)]
    train = _joined(trained, names)
    tests = None if client_tests is None else _tests(client_tests, clients, names, train)
    if test is not None:
        held_out = to_samples(*_pair(test, "test"), "test")
    else:
        held_out = _empty_like(train) if tests is None else _joined(tests, names)
    sizes = [len(samples) for samples in trained]
    parts = np.split(np.arange(len(train)), np.cumsum(sizes)[:-1])
    return PartitionedData(_dataset(train, held_out, num_classes, mean, std, name), parts, tests, names)


def to_samples(x: Any, y: Any, where: str) -> Samples:
    """Inputs and labels as tensors; numpy arrays keep their memory.  Whole numbers become int64, but uint8 images."""
    try:
        inputs, targets = _tensor(x), _tensor(y)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: this is no array: {error}; expected inputs [n, ...] and labels [n]") from None
    if inputs.dtype in (torch.int8, torch.int16, torch.int32):
        inputs = inputs.long()
    if inputs.dtype == torch.uint8 and inputs.dim() == 3:
        raise ValueError(f"{where}: uint8 inputs of shape {tuple(inputs.shape)} have no channels; pass x[:, None]")
    if inputs.dtype == torch.uint8 and inputs.dim() == 4 and inputs.shape[1] > 4 >= inputs.shape[3]:
        raise ValueError(
            f"{where}: images of shape {tuple(inputs.shape)} have their channels last; pass x.transpose(0, 3, 1, 2)"
        )
    try:
        return Samples(inputs, targets if targets.is_floating_point() else targets.long())
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _tensor(values: Any) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach()
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"dtype {array.dtype}; names of classes become numbers with np.unique(y, return_inverse=True)")
    # torch has no negative strides, wants writable memory, and neither other byte orders nor wide unsigned numbers.
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    native = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    return torch.from_numpy(native if native.flags.writeable else native.copy())


def _dataset(
    train: Samples,
    test: Samples,
    num_classes: int | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    name: str,
) -> Dataset:
    if not len(train):
        raise ValueError(f"{name}: there are no training samples")
    if num_classes is None:
        num_classes = 1 + max(int(samples.targets.max()) for samples in (train, test) if len(samples))
    return Dataset(name, train, test, num_classes, _floats(mean), _floats(std))


def _floats(values: Sequence[float] | None) -> tuple[float, ...] | None:
    return None if values is None else tuple(map(float, values))


def _named(clients: Mapping[Any, Pair] | Sequence[Pair], where: str) -> tuple[list[str], list[Pair]]:
    named = clients if isinstance(clients, Mapping) else dict(enumerate(clients))
    return [str(name) for name in named], [_pair(pair, f"{where}[{name!r}]") for name, pair in named.items()]


def _pair(pair: Any, where: str) -> Pair:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ValueError(f"{where} is a {type(pair).__name__}; expected a pair (x, y) of inputs and labels")
    return pair[0], pair[1]


def _tests(
    client_tests: Mapping[Any, Pair] | Sequence[Pair],
    clients: Mapping[Any, Pair] | Sequence[Pair],
    names: list[str],
    train: Samples,
) -> list[Samples]:
    """In the order of the clients; a client that a mapping leaves out has no test samples."""
    if isinstance(client_tests, Mapping) != isinstance(clients, Mapping):
        raise ValueError("client_tests must have the form of clients: both by name, or both lists")
    found, pairs = _named(client_tests, "client_tests")
    if unknown := [name for name in found if name not in names]:
        raise ValueError(
            f"client_tests has {unknown[0]!r}, which is no client; clients are {', '.join(names[:5])}, ..."
        )
    by_name = dict(zip(found, pairs, strict=True))
    return [
        to_samples(*by_name[name], f"test of client {name}") if name in by_name else _empty_like(train)
        for name in names
    ]


def _joined(samples: Sequence[Samples], names: Sequence[str]) -> Samples:
    first = samples[0].inputs
    for part, name in zip(samples, names, strict=True):
        if (part.inputs.shape[1:], part.inputs.dtype) != (first.shape[1:], first.dtype):
            raise ValueError(
                f"inputs of client {name} are {part.inputs.dtype} {tuple(part.inputs.shape[1:])}, those of client "
                f"{names[0]} {first.dtype} {tuple(first.shape[1:])}; expected the same of all"
            )
    return Samples(torch.cat([part.inputs for part in samples]), torch.cat([part.targets for part in samples]))


def _column(values: Any, samples: int, where: str) -> Array:
    ids = np.asarray(values)
    if ids.shape != (samples,):
        raise ValueError(f"{where} has shape {ids.shape}; expected one id for each of {samples} samples")
    return ids


def _rows_of_each(owners: Array, count: int) -> list[Array]:
    """Of owners 0 .. count - 1, in their order."""
    sizes = np.bincount(owners, minlength=count)
    return np.split(np.argsort(owners, kind="stable"), np.cumsum(sizes)[:-1])


def _rows(samples: Samples, rows: Array) -> Samples:
    index = torch.from_numpy(rows)
    return Samples(samples.inputs[index], samples.targets[index])


def _empty_like(samples: Samples) -> Samples:
    return Samples(samples.inputs[:0], samples.targets[:0])

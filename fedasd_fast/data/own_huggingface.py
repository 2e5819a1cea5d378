"""Datasets of the package `datasets` (Hugging Face) as federated data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .federated import Dataset, PartitionedData
from .own_arrays import from_arrays
from .own_rows import stack


def from_huggingface(
    dataset: Any,
    *,
    inputs: str = "image",
    label: str = "label",
    test: Any = None,
    users: str | None = None,
    client_tests: bool = False,
    num_classes: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    name: str = "own",
) -> Dataset | PartitionedData:
    """A `datasets.Dataset`, or a DatasetDict with `train` and perhaps `test`, divided as in `from_arrays`.

    `inputs` and `label` name columns; `users` a column whose every value is a client, with `client_tests` of the test
    split too: whose each test sample is.  Images become uint8; rows of whole numbers, all of a length, are token ids.
    """
    if isinstance(dataset, Mapping):
        if "train" not in dataset:
            raise ValueError(f"the dataset has splits {', '.join(dataset)}; expected train, or pass one split")
        dataset, test = dataset["train"], dataset.get("test") if test is None else test
    x, y = _read(dataset, inputs, label)
    held_out = None if test is None else _read(test, inputs, label)
    if client_tests and (users is None or test is None):
        raise ValueError("client_tests = True needs a test split and `users`, a column of both splits")
    ids = None if users is None else _column(dataset, users)
    test_ids = _column(test, users) if client_tests and users is not None else None
    classes = num_classes or getattr(dataset.features[label], "num_classes", None)
    common: dict[str, Any] = dict(num_classes=classes, mean=mean, std=std, name=name)
    return from_arrays(x, y, test=held_out, users=ids, test_users=test_ids, **common)


def _read(dataset: Any, inputs: str, label: str) -> tuple[Any, Any]:
    return stack(_column(dataset, inputs), inputs), stack(_column(dataset, label), label)


def _column(dataset: Any, name: str) -> list[Any]:
    if name not in (dataset.column_names or ()):
        raise ValueError(f"there is no column {name!r}; columns are {', '.join(dataset.column_names or ())}")
    return list(dataset.with_format(None)[:][name])

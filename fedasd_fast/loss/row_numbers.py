"""with_rows: a Dataset whose samples carry their row number, so that shuffled batches find their rows in a cache."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from torch.utils.data import Dataset, IterableDataset

from ..kernels.checks import wrong_type


class NumberedDataset(Dataset[Any]):
    """Each sample with its row number: (x, y) becomes (x, y, row), a dict gets the key "rows"."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        row = operator.index(index)
        return _numbered(self.dataset[row], row if row >= 0 else row + len(self))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Of a whole batch, which some datasets read faster than its samples one by one."""
        together = getattr(self.dataset, "__getitems__", None)
        if together is None:
            return [self[i] for i in indices]
        return [_numbered(sample, i) for sample, i in zip(together(indices), indices, strict=True)]


def with_rows(dataset: Any) -> NumberedDataset:
    """The dataset with row numbers: a DataLoader of it gives (inputs, targets, rows), in any order and with any number
    of workers, and `cache[rows]` is what belongs to the batch.

        dataset = fa.with_rows(dataset)
        cache = fa.TeacherCache.build(global_model, dataset)
        for x, y, rows in DataLoader(dataset, batch_size=50, shuffle=True):
            loss = loss_fn(model(x), cache[rows], y)

    Samples that are dicts get the key "rows" instead.  Wrap the client's own dataset (a Subset, say), not what it is a
    part of: rows count from 0.
    """
    if isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise wrong_type(dataset, "dataset", "a Dataset with a length and numbered samples")
    return NumberedDataset(dataset)


def _numbered(sample: Any, row: int) -> Any:
    if isinstance(sample, Mapping):
        if "rows" in sample:
            raise ValueError('the samples of dataset have a key "rows" already; rename it')
        return {**sample, "rows": row}
    return (*sample, row) if isinstance(sample, (tuple, list)) else (sample, row)

"""Which function makes federated data of what a user has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch.utils.data
from torch import Tensor


def advice(data: Any) -> str:
    """The call that takes `data`, for an error message."""
    if type(data).__module__.split(".")[0] == "datasets":
        return "fa.data.from_huggingface(dataset)"
    if isinstance(data, torch.utils.data.DataLoader):
        return "fa.data.from_torch(loader.dataset)"
    if _is_torch(data):
        return "fa.data.from_torch(dataset)"
    if are_samples(data):
        return "fa.data.from_torch(samples)"
    if isinstance(data, (np.ndarray, Tensor)) or (isinstance(data, tuple) and len(data) == 2):
        return "fa.data.from_arrays(x, y)"
    if isinstance(data, Mapping):
        return "fa.data.from_clients({name: (x, y)})"
    if isinstance(data, (list, tuple)) and data:
        return "fa.data.from_torch(subsets)" if _is_torch(data[0]) else "fa.data.from_clients([(x, y), ...])"
    return "what fa.data.from_arrays, from_clients, from_torch or from_huggingface returns"


def are_samples(data: Any) -> bool:
    """Whether this is a list of (input, label), one for each sample."""
    pairs = isinstance(data, (list, tuple)) and len(data) > 0 and isinstance(data[0], (list, tuple))
    return pairs and len(data[0]) == 2 and not isinstance(data[0][1], (list, tuple, str)) and np.ndim(data[0][1]) == 0


def _is_torch(data: Any) -> bool:
    return isinstance(data, torch.utils.data.Dataset)

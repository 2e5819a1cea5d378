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
    if isinstance(data, (np.ndarray, Tensor)) or (isinstance(data, tuple) and len(data) == 2):
        return "fa.data.from_arrays(x, y)"
    if isinstance(data, Mapping):
        return "fa.data.from_clients({name: (x, y)})"
    if isinstance(data, (list, tuple)) and data:
        return "fa.data.from_torch(subsets)" if _is_torch(data[0]) else "fa.data.from_clients([(x, y), ...])"
    return "what fa.data.from_arrays, from_clients, from_torch or from_huggingface returns"


def _is_torch(data: Any) -> bool:
    return isinstance(data, torch.utils.data.Dataset)

"""Copies of tensors from the host to a device that the host does not wait for."""

from __future__ import annotations

import torch
from torch import Tensor


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on `device`.  It is copied from pinned memory while the host continues; torch's allocator keeps that
    memory until the copy is finished."""
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)

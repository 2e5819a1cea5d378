"""A module whose parameters and gradients are views of two flat vectors.

Methods, aggregation, state and checkpoints then deal with one vector [P] in place of a dictionary of tensors, and a
local step needs no flattening.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..models import refuse_running_statistics
from ..typed import ConfigError


class FlatModel:
    def __init__(self, module: nn.Module, dtype: torch.dtype = torch.float32, device: str = "cpu") -> None:
        refuse_running_statistics(module)
        self.module = module.to(device=device, dtype=dtype)
        self._parameters = [p for p in module.parameters() if p.requires_grad]  # frozen ones stay as they are
        if not self._parameters:
            raise ConfigError(
                f"the model {type(module).__name__} has no parameter that requires grad: nothing to train"
            )
        self.vector = torch.cat([p.detach().reshape(-1) for p in self._parameters])  # [P] the parameters themselves
        self.gradient = torch.zeros_like(self.vector)  # [P] backward() adds to it
        offset = 0
        for p in self._parameters:
            p.data = self.vector[offset : offset + p.numel()].view_as(p)
            p.grad = self.gradient[offset : offset + p.numel()].view_as(p)
            offset += p.numel()

    def __len__(self) -> int:
        return self.vector.numel()

    @contextmanager
    def holding(self, vector: Tensor) -> Iterator[nn.Module]:
        """The module with other parameters for a while."""
        own = self.vector.clone()
        self.vector.copy_(vector)
        try:
            yield self.module
        finally:
            self.vector.copy_(own)

"""What lies where in a model's vector: parameters, then running statistics of BatchNorm; and what stays with clients.

The whole vector [N] is what is summed, kept, saved and evaluated.  Methods and local steps see its parameters [P] only:
no penalty, momentum or server optimizer applies to a running variance.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class VectorLayout:
    statistics_size: int = 0  # S: how many of the N entries are running statistics, the last ones
    local: Tensor | None = None  # bool [N]: what a client keeps to itself, BatchNorm in FedBN; None: nothing

    def trained(self, vectors: Tensor) -> Tensor:
        """The parameters [.., P] of whole vectors [.., N]."""
        return vectors[..., : -self.statistics_size] if self.statistics_size else vectors

    def statistics(self, vectors: Tensor) -> Tensor | None:
        """The running statistics [.., S]; None: the model has none."""
        return vectors[..., -self.statistics_size :] if self.statistics_size else None

    def whole(self, parameters: Tensor, statistics: Tensor | None = None) -> Tensor:
        """[.., N] of parameters [.., P] and statistics [.., S], zeros if there are none."""
        if not self.statistics_size:
            return parameters
        if statistics is None:
            statistics = parameters.new_zeros(*parameters.shape[:-1], self.statistics_size)
        return torch.cat([parameters, statistics.to(parameters.dtype)], dim=-1)

    def shared(self, parameters: Tensor) -> Tensor:
        """Parameters [.., P] with zeros for those that stay with clients."""
        return parameters if self.local is None else parameters.masked_fill(self.trained(self.local), 0.0)

    def personal(self, common: Tensor, own: Tensor) -> Tensor:
        """Vectors [.., N], or parameters [.., P], with the clients' own values of what stays with them."""
        if self.local is None:
            return common
        whole = common.shape[-1] == len(self.local)
        return torch.where(self.local if whole else self.trained(self.local), own, common)

    def exchanged(self, size: int) -> int:
        """How many of the N entries of a vector are sent."""
        return size if self.local is None else size - int(self.local.sum())

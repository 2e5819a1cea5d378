"""Running sums over the clients of a round, in fixed point: any order and any grouping gives the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class ClientReport:
    """What is known of a client after its local training."""

    client: int
    steps: int
    samples: int
    loss: float  # mean over its steps
    distance: float = 0.0  # ||w_k - w_t||
    error: str | None = None  # why it was dropped
    skipped: int = 0  # of its steps, whose gradient overflowed in float16


@dataclass
class Sums:
    mean: Tensor  # [P] sum of weight_k w_k
    change: dict[str, Tensor]  # [P] sum over participants of the change of each client state, over K
    all_change: Tensor | None  # [P] sum of the change of proportion_k (last upload - initial)
    reports: list[ClientReport] = field(default_factory=list)

    def add(self, other: Sums) -> None:
        self.mean += other.mean
        for name, total in other.change.items():
            self.change[name] += total
        if self.all_change is not None and other.all_change is not None:
            self.all_change += other.all_change
        self.reports += other.reports


@dataclass(frozen=True)
class SumLayout:
    """Which vectors a round sums up, as the rows of one matrix: the mean, the change of each client state, and the
    change of the all-clients average if that is tracked."""

    client_state: Sequence[str]
    tracks_all: bool
    size: int  # P
    device: torch.device

    @property
    def rows(self) -> int:
        return 1 + len(self.client_state) + self.tracks_all

    def empty(self) -> Sums:
        return self.over(torch.zeros(self.rows, self.size, dtype=torch.int64, device=self.device))

    def over(self, rows: Tensor) -> Sums:
        """The sums as views of int64 [rows, P]."""
        mean, *change = rows
        all_change = change.pop() if self.tracks_all else None
        return Sums(mean, dict(zip(self.client_state, change, strict=True)), all_change)

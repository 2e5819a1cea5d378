"""What callbacks are told: of a run when it starts, of a client when it was trained."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import Config
from .metrics import Metrics

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Run:
    config: Config
    out: Path | None
    metrics: list[Metrics]  # of the rounds done before, when resumed
    choice: str | None = None  # what executor = auto found fastest, and by how much

    @property
    def tracker_id(self) -> str | None:
        """The same for the same run directory, so that a resumed run continues its curves in a tracker."""
        return None if self.out is None else hashlib.sha256(str(self.out.resolve()).encode()).hexdigest()[:16]

    @property
    def tracker_name(self) -> str:
        return self.config.name if self.out is None else self.out.name


@dataclass(frozen=True)
class ClientResult:
    """A client's local training, whose update counts.  Tensors are copies on the device of the training."""

    client: int
    round: int  # 1-based, as in metrics.jsonl
    end: Tensor  # [P] where training ended, a flat vector as in `Result.models`
    server: Tensor  # [P] the model that the server sent; one copy for all clients of the round
    losses: Tensor  # [steps]
    epochs: int
    samples: int  # that training went through, epochs counted
    weight: float  # of the client in the mean over the participants

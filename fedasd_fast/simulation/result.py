"""What a run gives: configuration, metrics, models."""

from __future__ import annotations

import copy
import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..config import Config
from ..models.norm_statistics import reset_batch_counts
from .client.flat_model import FlatModel


@dataclass(frozen=True)
class Result:
    """What a run gives: its configuration, one row of metrics a round (as in metrics.jsonl), the evaluated models as
    flat vectors by name (all, sel, cloud), and its run directory, if it has one."""

    config: Config
    metrics: list[dict[str, Any]]  # one row a round, as in metrics.jsonl
    models: dict[str, Tensor]  # all, sel and cloud as flat vectors [P], running statistics behind the parameters
    out: Path | None
    _model: FlatModel

    def module(self, name: str = "all") -> nn.Module:
        """A module of its own with these parameters, in eval mode."""
        with self._model.holding(self._vector(name)) as module:
            reset_batch_counts(module)
            return copy.deepcopy(module).eval()

    def state_dict(self, name: str = "all") -> dict[str, Tensor]:
        """What `load_state_dict` of the caller's own module takes, on the CPU.  The vectors of `models` are no such
        thing: kernels of convolutions lie channels last in them."""
        with self._model.holding(self._vector(name)) as module:
            reset_batch_counts(module)
            return {
                key: value.to("cpu", copy=True, memory_format=torch.contiguous_format)
                for key, value in module.state_dict().items()
            }

    def state_dicts(self) -> memoryview:
        """The state dictionaries of all models, as a file for torch.load."""
        buffer = io.BytesIO()
        torch.save({name: self.state_dict(name) for name in self.models}, buffer)
        return buffer.getbuffer()

    def copy(self) -> Result:
        """Whose vectors may be kept or changed while the run goes on."""
        return replace(self, models={name: vector.clone() for name, vector in self.models.items()})

    def _vector(self, name: str) -> Tensor:
        if name not in self.models:
            raise ValueError(f"there is no model {name!r}; expected one of {', '.join(self.models)}")
        return self.models[name]

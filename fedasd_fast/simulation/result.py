"""What a run gives: configuration, metrics, models."""

from __future__ import annotations

import copy
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..config import Config
from .client.flat_model import FlatModel


@dataclass(frozen=True)
class Run:
    """What callbacks are told at the start."""

    config: Config
    out: Path | None
    metrics: list[dict[str, Any]]  # of the rounds done before, when resumed
    choice: str | None = None  # what executor = auto found fastest, and by how much


@dataclass(frozen=True)
class Result:
    config: Config
    metrics: list[dict[str, Any]]  # one row a round, as in metrics.jsonl
    models: dict[str, Tensor]  # all, sel and cloud as flat vectors [P]
    out: Path | None
    _model: FlatModel

    def module(self, name: str = "all") -> nn.Module:
        """A module of its own with these parameters, in eval mode."""
        with self._model.holding(self.models[name]) as module:
            return copy.deepcopy(module).eval()

    def state_dicts(self) -> memoryview:
        """The state dictionaries of all models, as a file for torch.load."""
        dicts = {}
        for name, vector in self.models.items():
            with self._model.holding(vector) as module:
                dicts[name] = {key: value.to("cpu", copy=True) for key, value in module.state_dict().items()}
        buffer = io.BytesIO()
        torch.save(dicts, buffer)
        return buffer.getbuffer()

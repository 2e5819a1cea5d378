"""Callback that sends metrics to Weights & Biases; WANDB_MODE=offline keeps them on this machine."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from ..common.schema import ConfigError
from .base import Callback
from .events import Run
from .metrics import Metrics, numeric_metrics

if TYPE_CHECKING:
    from ..simulation.result import Result


class WandB(Callback):
    """Sends the metrics of every round to Weights & Biases."""

    def __init__(self, project: str | None = None, entity: str | None = None) -> None:
        """Without a project WANDB_PROJECT, or `fedasd`; without an entity WANDB_ENTITY, or the user's default."""
        self.project, self.entity = project or os.environ.get("WANDB_PROJECT", "fedasd"), entity
        self.run: Any = None
        try:
            self.wandb = importlib.import_module("wandb")
        except ImportError:
            raise ModuleNotFoundError(
                "writing for Weights & Biases needs the package wandb: pip install 'fedasd-fast[wandb]'"
            ) from None

    def on_start(self, run: Run) -> None:
        try:
            self.run = self._start(run)
        except self.wandb.errors.Error as error:  # no key, no network
            reason = str(error).strip().splitlines()[0]
            raise ConfigError(
                f"Weights & Biases cannot be used: {reason}; `wandb login` stores a key, WANDB_MODE=offline needs none"
            ) from None

    def _start(self, run: Run) -> Any:
        return self.wandb.init(
            project=self.project,
            entity=self.entity,
            name=run.tracker_name,
            id=run.tracker_id,
            resume="allow",
            config=run.config.to_dict(),
            dir=None if run.out is None else str(run.out),
        )

    def on_round(self, metrics: Metrics) -> None:
        self.run.log(numeric_metrics(metrics), step=metrics["round"])

    def on_end(self, result: Result) -> None:
        self.run.finish()

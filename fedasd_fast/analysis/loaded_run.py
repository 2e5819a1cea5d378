"""A run loaded at its last checkpoint for analysis; nothing in its run directory changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..data.federated import FederatedData
from ..simulation.cohort import Workplace
from ..simulation.errors import SimulationError
from ..simulation.run import restore_place, workplace
from ..simulation.state import State, from_plain
from ..simulation.storage import checkpoint
from ..simulation.storage.run_directory import RunFolder


@dataclass(frozen=True)
class LoadedRun:
    path: Path
    context: Workplace  # configuration, data, method, trainer, and the state that clients keep
    state: State  # at the last checkpoint
    before: State | None  # at the checkpoint before it, if there is one
    metrics: Sequence[Mapping[str, Any]]

    def model(self, name: str) -> Tensor:
        """all, sel or cloud as a vector [P], at the last checkpoint."""
        return self.state.model(name)


def load_run(path: str | Path, *, data: FederatedData | None = None, model: nn.Module | None = None) -> LoadedRun:
    """`data` and `model` are those that were passed to `simulate`, if any."""
    folder = RunFolder(Path(path))
    config = folder.config().replace(executor="serial", clients_at_once=0)
    kept = checkpoint.load(folder.checkpoints)
    if not kept:
        raise SimulationError(f"{path} has no checkpoint yet; run it further, or choose another run")
    context = workplace(config, data, model, folder.clients)
    context, state = restore_place(context, kept, 0, read_only=True)
    before = from_plain(kept[1]["state"], context.initial.device) if kept[1:] else None
    return LoadedRun(folder.path, context, state, before, folder.metrics(state.round))

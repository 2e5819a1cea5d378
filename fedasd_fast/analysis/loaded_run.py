"""A run as the analyses see it: its models, data, clients' records and metrics; nothing in its folder changes."""

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
class OpenedRun:
    path: Path
    place: Workplace  # config, data, method, trainer, and the records that clients keep
    state: State  # at the last checkpoint
    before: State | None  # at the checkpoint before it, if that is kept
    metrics: Sequence[Mapping[str, Any]]

    def model(self, name: str) -> Tensor:
        """all, sel or cloud as a vector [P], as of the last checkpoint."""
        return self.state.model(name)


def opened(path: str | Path, *, data: FederatedData | None = None, model: nn.Module | None = None) -> OpenedRun:
    """`data` and `model` are those that the run was given in place of what its configuration names."""
    folder = RunFolder(Path(path))
    config = folder.config().replace(executor="serial", clients_at_once=0)
    kept = checkpoint.load(folder.checkpoints)
    if not kept:
        raise SimulationError(f"{path} has no checkpoint yet; run it further, or look at another run")
    place = workplace(config, data, model, folder.clients)
    place, state = restore_place(place, kept, 0, read_only=True)
    before = from_plain(kept[1]["state"], place.initial.device) if kept[1:] else None
    return OpenedRun(folder.path, place, state, before, folder.metrics(state.round))

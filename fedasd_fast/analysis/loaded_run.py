"""A run as the analyses see it: its models, data, clients' records and metrics; nothing in its folder changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..data.federated import FederatedData
from ..simulation.context import Context, Inputs, build_context
from ..simulation.distributed.sharding import Shard
from ..simulation.errors import SimulationError
from ..simulation.restore import restore, saved_parallelism
from ..simulation.state import State, from_plain
from ..simulation.storage import checkpoint
from ..simulation.storage.run_directory import RunDirectory


@dataclass(frozen=True)
class OpenedRun:
    path: Path
    context: Context  # configuration, data, method, trainer, and the records that clients keep
    state: State  # at the last checkpoint
    before: State | None  # at the checkpoint before it, if that is kept
    metrics: Sequence[Mapping[str, Any]]

    def model(self, name: str) -> Tensor:
        """all, sel or cloud as a vector [P], as of the last checkpoint."""
        return self.state.model(name)


def opened(path: str | Path, *, data: FederatedData | None = None, model: nn.Module | None = None) -> OpenedRun:
    """`data` and `model` are those that the run was given in place of what its configuration names."""
    folder = RunDirectory(Path(path))
    config = folder.config().replace(executor="serial", clients_at_once=0)
    kept = checkpoint.load(folder.checkpoints)
    if not kept:
        raise SimulationError(f"{path} has no checkpoint yet; run it further, or look at another run")
    shard, parallelism = Shard(folder.clients), saved_parallelism(kept[0])
    context = build_context(config, Inputs(data, model), shard=shard, parallelism=parallelism)
    state = restore(context, kept, read_only=True)
    before = from_plain(kept[1]["state"], context.initial.device) if kept[1:] else None
    return OpenedRun(folder.path, context, state, before, folder.metrics(state.round))

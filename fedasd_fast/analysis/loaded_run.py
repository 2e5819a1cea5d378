"""A run loaded at its last checkpoint for analysis; nothing in its run directory changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..common.code_trust import require_trust
from ..data.federated import Dataset, FederatedData
from ..simulation.context import Context, build_context, named_code
from ..simulation.distributed.sharding import Shard
from ..simulation.errors import SimulationError
from ..simulation.inputs import check_inputs, own_inputs
from ..simulation.restore import restore, saved_parallelism
from ..simulation.state import State, from_plain
from ..simulation.storage import checkpoint
from ..simulation.storage.run_directory import RunDirectory
from ..simulation.system.process_state import own_process_state


@dataclass(frozen=True)
class LoadedRun:
    path: Path
    context: Context  # configuration, data, method, trainer, and the state that clients keep
    state: State  # at the last checkpoint
    before: State | None  # at the checkpoint before it, if there is one
    metrics: Sequence[Mapping[str, Any]]

    def model(self, name: str) -> Tensor:
        """all, sel or cloud as a vector [P], at the last checkpoint."""
        return self.state.model(name)


def load_run(
    path: str | Path,
    *,
    data: FederatedData | Dataset | None = None,
    model: nn.Module | None = None,
    trust_code: bool = False,
) -> LoadedRun:
    """`data` and `model` are those that were passed to `simulate`, if any; `trust_code` as in `resume`."""
    directory = RunDirectory(Path(path))
    config = directory.config().replace(executor="serial", clients_at_once=0, precision="float32")
    require_trust(path, named_code(config, model=model), trusted=trust_code)
    inputs = own_inputs(config, data, model)
    check_inputs(config.inputs, inputs)
    kept = checkpoint.load(directory.checkpoints)
    if not kept:
        raise SimulationError(f"{path} has no checkpoint yet; run it further, or choose another run")
    shard, parallelism = Shard(directory.clients), saved_parallelism(kept[0])
    with own_process_state():
        context = build_context(config, inputs, shard=shard, parallelism=parallelism)
        if context.experiment.data.positions is not None:
            raise SimulationError(
                f"{path} was trained on sequences with a target at each position; analyses need one label a sample"
            )
        if context.experiment.layout.statistics_size or context.experiment.layout.local is not None:
            raise SimulationError(f"{path} has a network with BatchNorm; analyses are for networks without")
        state = restore(context, kept, read_only=True)
    before = from_plain(kept[1]["state"], context.initial.device) if kept[1:] else None
    return LoadedRun(directory.path, context, state, before, directory.metrics(state.round))

"""One client of one round again, alone: to see why it failed, or what it did."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from ..data.federated import FederatedData
from . import executors, state
from .cohort import tasks, train_client
from .errors import ClientError, SimulationError
from .round import run_round, server_of
from .run import check_same, restore_place, workplace
from .storage import checkpoint
from .storage.run_directory import RunFolder
from .system.threads import threads


@dataclass(frozen=True)
class Replay:
    losses: list[float]  # of each local step
    error: str | None
    rounds_repeated: int  # from the nearest checkpoint to the round asked for


def replay(
    out: str | Path, round: int, client: int, *, data: FederatedData | None = None, model: nn.Module | None = None
) -> Replay:
    """Trains `client` as in `round` (1-based, as in metrics.jsonl); nothing in the folder changes.

    Starts at the nearest checkpoint before that round, or at the first round, and repeats what lies between.
    """
    folder = RunFolder(Path(out))
    config = folder.config()  # before the lock, which leaves a file: this may be no run's folder
    with folder:
        if not 1 <= round <= config.rounds:
            raise SimulationError(f"round = {round}; expected 1 .. {config.rounds}")
        place = workplace(config, data, model, folder.clients)
        kept = checkpoint.load(folder.checkpoints)
        usable = [i for i, content in enumerate(kept) if content["state"]["round"] < round]
        if kept:
            check_same(config, kept[0]["config"])
        if usable:
            rounds = range(kept[usable[0]]["state"]["round"], round)
            involved = {task.client for r in rounds for task in tasks(config, place.data, place.method, r)}
            place, now = restore_place(place, kept, usable[0], read_only=True, wanted=involved.__contains__)
        else:
            now = state.first(config, place.method, place.initial)
            place.store.overlay()
        executor = executors.local(place)
        repeated = round - 1 - now.round
        while now.round < round - 1:
            now, _ = run_round(place, executor, now)
            place.store.mark()
        todo = {task.client: task for task in tasks(config, place.data, place.method, now.round)}
        if client not in todo:
            raise SimulationError(f"client {client} took no part in round {round}; those that did: {sorted(todo)}")
        losses: list[Tensor] = []
        error = None
        try:
            with threads(place.threads):
                train_client(place, server_of(place, now), todo[client], losses)
        except ClientError as failure:
            error = str(failure)
        return Replay([float(loss) for loss in losses], error, repeated)

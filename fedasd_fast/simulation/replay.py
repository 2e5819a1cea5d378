"""Replay of one client in one round: to see why it failed, or what it did."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from ..algorithms import Server
from ..common.code_trust import require_trust
from ..data.federated import Dataset, FederatedData
from . import state
from .client.chain_trainer import ChainTrainer
from .client.cohort_clients import CohortClients
from .client.update import checked_update, train_client
from .cohort import ClientTask
from .context import Context, build_context, named_code
from .distributed.sharding import Shard
from .errors import ClientError, SimulationError
from .executors import local_executor
from .experiment import Experiment
from .inputs import check_inputs, own_inputs
from .restore import check_same_settings, restore, saved_parallelism
from .round import run_round
from .round_plan import plan_round
from .state import State
from .storage import checkpoint
from .storage.client_store import ClientStore
from .storage.run_directory import RunDirectory
from .system.process_state import own_process_state
from .system.tf32 import tf32
from .system.threads import threads

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Replay:
    losses: list[float]  # of each local step
    error: str | None
    rounds_repeated: int  # from the nearest checkpoint to the round asked for


def replay(
    out: str | Path,
    round: int,
    client: int,
    *,
    data: FederatedData | Dataset | None = None,
    model: nn.Module | None = None,
    trust_code: bool = False,
) -> Replay:
    """Trains `client` as in `round` (1-based, as in metrics.jsonl); nothing in the run directory changes.

    Starts at the nearest checkpoint before that round, or at the first round, and repeats what lies between.
    `trust_code` as in `resume`.
    """
    directory = RunDirectory(Path(out))
    config = directory.config()  # before the lock, which leaves a file: this may be no run directory
    require_trust(out, named_code(config, model=model), trusted=trust_code)
    inputs = own_inputs(config, data, model)
    check_inputs(config.inputs, inputs)
    with own_process_state(), directory:
        if not 1 <= round <= config.rounds:
            raise SimulationError(f"round = {round}; expected 1 .. {config.rounds}")
        kept = checkpoint.load(directory.checkpoints)
        if kept:
            directory.check_complete(kept[0]["config"])
            check_same_settings(config, kept[0]["config"])
        usable = [i for i, content in enumerate(kept) if content["state"]["round"] < round]
        parallelism = saved_parallelism(kept[usable[0]]) if usable else None
        shard = Shard(directory.clients)
        context = build_context(config, inputs, shard=shard, parallelism=parallelism)
        experiment, records = context.experiment, context.records
        assert isinstance(records, ClientStore)
        if usable:
            involved = _involved(experiment, state.from_plain(kept[usable[0]]["state"], context.initial.device), round)
            now = restore(context, kept, usable[0], read_only=True, wanted=involved.__contains__)
        else:
            now = experiment.first_state(context.initial)
            records.write_to_memory()
        executor = local_executor(context)
        repeated = round - 1 - now.round
        while now.round < round - 1:
            with tf32(config.tf32):
                now, _ = run_round(experiment, executor, now)
            records.mark()
        tasks = {task.client: task for task in plan_round(experiment, now).tasks}
        if client not in tasks:
            raise SimulationError(f"client {client} took no part in round {round}; those that did: {sorted(tasks)}")
        losses: list[Tensor] = []
        error = None
        try:
            with threads(context.parallelism.threads), tf32(config.tf32):
                _train(context, experiment.server(now), tasks[client], losses)
        except ClientError as failure:
            error = str(failure)
        return Replay([float(loss) for loss in losses], error, repeated)


def _involved(experiment: Experiment, at: State, round: int) -> set[int]:
    """The clients of the rounds that follow the state, up to this one."""
    clients: set[int] = set()
    while at.round < round:
        plan = plan_round(experiment, at)
        clients.update(plan.tasks.clients.tolist())
        at = replace(at, round=at.round + 1, clock=plan.clock)
    return clients


def _train(context: Context, server: Server, task: ClientTask, losses: list[Tensor]) -> None:
    """With the bits of the run if that trained its clients one at a time, or by the whole-client op, where they do not
    depend on other clients; up to the last bits if it stacked them."""
    experiment, records = context.experiment, context.records
    if context.chain is not None and context.parallelism.clients_at_once > 1:
        clients = CohortClients(experiment, np.array([task.client]), records, context.initial)
        try:
            run = ChainTrainer(context.trainer, context.chain).train(server, [task], clients).client(0)
        except Exception as error:  # as in a run, which then trains the client by itself to learn at which step it is
            _log.info("the whole-client op failed: %s", error)
        else:
            losses += run.losses
            checked_update(experiment, server, clients[0], records.read(task.client), run)
            return
    train_client(context.trainer, records, server, task, losses)

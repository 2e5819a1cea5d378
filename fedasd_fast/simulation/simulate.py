"""simulate and resume: a whole run, from its configuration or from its directory."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from ..callbacks import Callback
from ..common.code_trust import require_trust
from ..common.schema import ConfigError
from ..config import Config, from_dict
from ..data.federated import Dataset, FederatedData
from .callback_notes import watches_clients
from .context import Context, Parallelism, build_context, load_data, named_code
from .distributed.process_group import (
    NOT_STARTED,
    ProcessGroup,
    process_group,
    restart_count,
    started_by_torchrun,
)
from .distributed.sharding import Shard
from .errors import SimulationError
from .executors.autotune import choose_executor
from .inputs import Inputs, check_inputs, own_inputs, with_fingerprints
from .precision_speed import slow_precision
from .resource_estimate import check_resources
from .restore import check_same_settings, restore, saved_parallelism
from .result import Result
from .runner import Runner
from .state import State
from .storage import checkpoint
from .storage.run_directory import RankDirectory, RunDirectory
from .system.half_precision import check_precision
from .system.process_state import own_process_state
from .system.signals import StopRequests
from .system.tf32 import tf32

_log = logging.getLogger(__name__)


def simulate(
    config: Config | Mapping[str, Any],
    *,
    data: FederatedData | Dataset | None = None,
    model: nn.Module | None = None,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Runs a simulation from its first round; with config.out, into that directory.

    `data` and `model` take the place of what the configuration names: your own clients, your own network.  A Dataset
    is divided among clients as the configuration says; FederatedData have their number of clients, which a mapping may
    leave out.
    """
    config = _configuration(config, data)
    if config.executor == "auto" and started_by_torchrun():
        config = config.replace(executor="torchrun")
    inputs = own_inputs(config, data, model)
    config = with_fingerprints(config, inputs)
    with own_process_state(), process_group(config.executor) as group:
        group.check_settings(config)
        if config.out is None:
            context, choice = _prepare(config, inputs, callbacks, Shard(None, group.rank, group.world))
            return Runner(context, None, group, choice).run(callbacks, _first_state(context, group), [])
        directory, stop = _run_directory(Path(config.out), group), StopRequests()
        restarted = max(group.gather(restart_count())) > 0  # by torchrun, after a rank was lost
        if restarted and group.from_leader(directory.holds_a_run):
            return _continue(directory, config, inputs, callbacks, group)
        group.from_leader(directory.refuse_a_run)
        context, choice = _prepare(config, inputs, callbacks, Shard(directory.clients, group.rank, group.world), stop)
        runner = Runner(context, directory, group, choice)  # before anything is written: it may refuse the run
        first = _first_state(context, group)
        with directory, stop:
            group.from_leader(lambda: directory.begin(context.experiment.config, context.training))
            return runner.run(callbacks, first, [])


def resume(
    out: str | Path,
    changes: Mapping[str, Any] | None = None,
    *,
    data: FederatedData | Dataset | None = None,
    model: nn.Module | None = None,
    callbacks: Sequence[Callback] = (),
    trust_code: bool = False,
) -> Result:
    """Continues a run from its last checkpoint, bit for bit as if it had never stopped.

    `changes` may alter what the rounds done so far do not depend on, such as the number of rounds or of workers.
    `trust_code` allows a model or method that config.yaml names as package.module:Class.
    """
    changes = changes or {}
    executor = changes.get("executor", "torchrun") if started_by_torchrun() else ""
    with own_process_state(), process_group(executor) as group:
        directory = _run_directory(Path(out), group)
        # Before the lock, which leaves a file: this may be no run directory.
        config = group.from_leader(directory.config).replace(**changes)
        require_trust(out, named_code(config, changes, model), trusted=trust_code)
        if config.executor == "torchrun" and not started_by_torchrun():
            quoted = shlex.quote(str(out))  # in commands that may be copied
            raise ConfigError(
                f"{NOT_STARTED}: `torchrun ... resume {quoted}`, or `fedasd resume {quoted} executor=processes`"
            )
        if config.executor != "torchrun" and group.world > 1:
            raise ConfigError(
                f"{out} has executor = {config.executor}; continue it under torchrun with executor=torchrun"
            )
        group.check_settings(config)
        return _continue(directory, config, own_inputs(config, data, model), callbacks, group)


def _continue(
    directory: RunDirectory, config: Config, inputs: Inputs, callbacks: Sequence[Callback], group: ProcessGroup
) -> Result:
    with directory:
        saved = group.from_leader(directory.config)
        if not config.clients:  # the first attempt took them from the data
            config = config.replace(clients=saved.clients)
        check_same_settings(config, saved.to_yaml())
        check_inputs(saved.inputs, inputs)
        config = with_fingerprints(config, inputs)  # runs of older versions recorded none
        stop = StopRequests()
        kept = group.from_leader(lambda: checkpoint.load(directory.checkpoints))
        if kept:
            group.from_leader(lambda: directory.check_complete(kept[0]["config"]))
            check_same_settings(config, kept[0]["config"])
        parallelism = saved_parallelism(kept[0]) if kept else None
        shard = Shard(directory.clients, group.rank, group.world)
        context, choice = _prepare(config, inputs, callbacks, shard, stop, parallelism)
        # Without a checkpoint: it died before the first one.
        at = restore(context, kept) if kept else _first_state(context, group)
        config = context.experiment.config
        if at.round > config.rounds:
            raise SimulationError(f"rounds = {config.rounds}, but {at.round} are done; set rounds to that or more")
        directory.save(config, at.round, context.training)
        rows = group.from_leader(lambda: directory.rewind_metrics(at.round))
        if len(rows) < at.round:
            _log.warning("metrics.jsonl lacks %d of the %d rounds done", at.round - len(rows), at.round)
        with stop:
            return Runner(context, directory, group, choice).run(callbacks, at, rows, saved=bool(kept))


def _configuration(given: Config | Mapping[str, Any], data: FederatedData | Dataset | None) -> Config:
    if isinstance(given, Config):
        return given
    return from_dict({"clients": 0, **given} if isinstance(data, FederatedData) else given)


def _prepare(
    config: Config,
    inputs: Inputs,
    callbacks: Sequence[Callback],
    shard: Shard,
    stop: Callable[[], bool] = lambda: False,
    parallelism: Parallelism | None = None,
) -> tuple[Context, str | None]:
    """The context of the run, which fits this machine, and what executor = auto chose."""
    data = load_data(config, inputs)
    watchers = tuple(filter(watches_clients, callbacks))
    build = partial(build_context, data=data, shard=shard, stop=stop, parallelism=parallelism, watchers=watchers)
    context = build(config, inputs)
    check_resources(context)
    check_precision(config.precision, context.initial.device)
    if (slow := slow_precision(context)) is not None:
        _log.warning("%s", slow)
    if config.executor != "auto":
        return context, None
    with tf32(config.tf32):
        chosen, choice = choose_executor(context)
    _log.info("%s", choice)
    if parallelism:  # of a run that is continued: only the executor may change
        chosen = config.replace(executor=chosen.executor)
    # Anew, so that nothing of the trial is left and nothing holds the configuration from before.
    return build(chosen, inputs), choice


def _first_state(context: Context, group: ProcessGroup) -> State:
    first = context.experiment.first_state(context.initial)
    if any(clock != first.clock for clock in group.gather(first.clock)):
        devices, availability = context.experiment.config.devices, context.experiment.config.availability
        raise SimulationError(
            f"devices.profile = {devices.profile} or availability.pattern = {availability.pattern} is not the same "
            "file on all machines; copy it to all of them"
        )
    return first


def _run_directory(path: Path, group: ProcessGroup) -> RunDirectory:
    directory = RunDirectory(path)
    shard = Shard(directory.clients, group.rank, group.world).directory
    return directory if group.is_leader or shard is None else RankDirectory(path, shard)

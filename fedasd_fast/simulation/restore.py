"""Restoring a run from its checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..common import dotted, safe_yaml
from ..config import Config, from_saved
from . import state
from .context import Context, Parallelism
from .distributed.sharding import restore_records
from .errors import SimulationError
from .state import State
from .storage.client_store import ClientStore

# Settings that may differ when a run is continued: the rounds done so far do not depend on them.
_FREE_SETTINGS = {"name", "rounds", "checkpoint_every", "on_client_error", "executor", "workers", "data_dir", "out",
                  "stop_at_target"}  # fmt: skip
_COMPARED_ELSEWHERE = {"inputs"}  # see inputs.py


def check_same_settings(config: Config, saved: str) -> None:
    """Refuses to continue under settings that would give another result than the run began with."""
    # Through Config: settings that came after the run began were what from_saved makes of them.
    now, then = config.to_dict(), from_saved(safe_yaml.load(saved, "the configuration in the checkpoint")).to_dict()
    free = _FREE_SETTINGS | _COMPARED_ELSEWHERE
    changed = [key for key in dotted.differences(now, then) if key.partition(".")[0] not in free]
    if changed:
        listed = ", ".join(f"{key} = {dotted.lookup(now, key)!r} (was {dotted.lookup(then, key)!r})" for key in changed)
        raise SimulationError(
            f"the settings changed since the last checkpoint: {listed}; put them back in config.yaml, or start a new "
            f"run. Free to change: {', '.join(sorted(_FREE_SETTINGS))}"
        )


def saved_parallelism(content: Mapping[str, Any]) -> Parallelism:
    """Of a checkpoint.  Bits depend on it, and this machine or another executor might choose differently."""
    return Parallelism(content["threads"], content.get("at_once", 1))


def restore(
    context: Context,
    kept: Sequence[Mapping[str, Any]],
    which: int = 0,
    read_only: bool = False,
    wanted: Callable[[int], bool] = lambda _: True,
) -> State:
    """The state of checkpoint kept[which]; the context gets its records and initial model.

    If records are only read, new ones will go to memory; `wanted` are the clients whose records matter.
    """
    for content in kept:
        _check_fits(context, content["state"])
    initial = kept[which]["state"]["initial"]
    assert isinstance(context.records, ClientStore)
    snapshots = [content["clients"] for content in kept]
    restore_records(context.records, context.shard, snapshots, which, read_only, wanted)
    context.initial.copy_(initial)
    return state.from_plain(kept[which]["state"], context.initial.device)


def _check_fits(context: Context, saved: Mapping[str, Any]) -> None:
    """Refuses the state of another model or method than the configuration's."""
    initial, experiment = saved["initial"], context.experiment
    if initial.shape != context.initial.shape:
        raise SimulationError(
            f"the checkpoint has {initial.numel():,} parameters, the model {context.initial.numel():,}; pass the model "
            "that the run was started with"
        )
    if experiment.config.precision == "float16" and "loss_scale" not in saved:
        raise SimulationError(
            "precision = float16, but the checkpoint has no loss scale: it was written in another precision; restore "
            "config.yaml, or start a new run"
        )
    clock = experiment.devices.first_clock if experiment.devices else None
    saved_clock = saved.get("clock")
    if (clock is None) != (saved_clock is None):
        raise SimulationError(
            f"devices.profile = {experiment.config.devices.profile}, but the checkpoint has "
            f"{'no' if clock else 'a'} simulated clock; restore config.yaml, or start a new run"
        )
    if clock and saved_clock and clock.files != saved_clock["files"]:
        raise SimulationError(
            f"the files of devices.profile = {experiment.config.devices.profile} or availability.pattern = "
            f"{experiment.config.availability.pattern} changed since the run began; restore them, or start a new run"
        )
    expected = (context.initial.dtype, experiment.tracks_all, set(experiment.method.server_state))
    if (initial.dtype, saved["all_change"] is not None, set(saved["server"])) != expected:
        raise SimulationError(
            f"the checkpoint was not written by {experiment.config.method} with dtype = {experiment.config.dtype} and "
            f"eval_models = {list(experiment.config.eval_models)}; restore config.yaml, or start a new run"
        )

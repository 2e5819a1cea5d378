"""A whole run: build what the configuration names, loop over rounds, evaluate, save, stop and continue."""

from __future__ import annotations

import copy
import io
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .. import models
from ..callbacks import Callback
from ..config import Config, from_dict
from ..data.federated import FederatedData
from ..data.load import federate
from ..data.resident import on_device
from ..randomness import Stream, torch_seeded
from ..typed import ConfigError
from . import checkpoint, executors, state
from .cohort import Workplace
from .errors import ClientError, Interrupted, SimulationError
from .evaluate import evaluate
from .flat import FlatModel
from .folder import RunFolder
from .plan import refuse_what_cannot_fit
from .round import run_round
from .signals import StopRequests
from .state import State
from .store import ClientStore
from .threads import choose, step_flops
from .trainer import Trainer

_log = logging.getLogger(__name__)
# Settings that may differ when a run is continued: what is done so far does not depend on them.
_FREE = {"name", "rounds", "checkpoint_every", "on_client_error", "workers", "data_dir", "out"}


@dataclass(frozen=True)
class Run:
    """What callbacks are told at the start."""

    config: Config
    out: Path | None
    metrics: list[dict[str, Any]]  # of the rounds done before, when resumed


@dataclass(frozen=True)
class Result:
    config: Config
    metrics: list[dict[str, Any]]  # one row a round, as in metrics.jsonl
    models: dict[str, Tensor]  # all, sel and cloud as flat vectors [P]
    out: Path | None
    _model: FlatModel

    def module(self, name: str = "all") -> nn.Module:
        """The model with these parameters; the same module object each time."""
        self._model.vector.copy_(self.models[name])
        return self._model.module.eval()


def simulate(
    config: Config | Mapping[str, Any],
    *,
    data: FederatedData | None = None,
    model: nn.Module | None = None,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Runs a simulation from its first round; with config.out, into that folder.

    `data` and `model` take the place of what the configuration names: your own clients, your own network.
    """
    config = config if isinstance(config, Config) else from_dict(config)
    if config.out is None:
        runner = _Runner(config, data, model, None, lambda: False)
        refuse_what_cannot_fit(runner.place)
        return runner.start(callbacks)
    folder = RunFolder(Path(config.out))
    folder.refuse_a_run()
    stop = StopRequests()
    runner = _Runner(config, data, model, folder, stop)
    refuse_what_cannot_fit(runner.place)
    with folder, stop:
        folder.begin(config)
        return runner.start(callbacks)


def resume(
    out: str | Path,
    changes: Mapping[str, Any] | None = None,
    *,
    data: FederatedData | None = None,
    model: nn.Module | None = None,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Continues a run from its last checkpoint, bit for bit as if it had never stopped.

    `changes` may alter what the rounds done so far do not depend on, such as the number of rounds or of workers.
    """
    folder = RunFolder(Path(out))
    saved = folder.config()  # before the lock, which leaves a file: this may be no run's folder
    with folder:
        config = saved.replace(**(changes or {}))
        check_same(config, saved.to_yaml())
        stop = StopRequests()
        runner = _Runner(config, data, model, folder, stop)
        with stop:
            return runner.start(callbacks, *runner.restore())


class _Runner:
    def __init__(
        self,
        config: Config,
        data: FederatedData | None,
        model: nn.Module | None,
        folder: RunFolder | None,
        stop: Callable[[], bool],
    ) -> None:
        self.config, self.folder = config, folder
        self.place = workplace(config, data, model, folder.clients if folder else None, stop)
        self.executor = executors.create(config.executor, self.place)
        self._saved = -1  # round of the last checkpoint

    def restore(self) -> tuple[State, list[dict[str, Any]]]:
        """The last whole checkpoint, and the metrics up to it."""
        assert self.folder is not None
        kept = checkpoint.load(self.folder.checkpoints)
        if kept:
            check_same(self.config, kept[0]["config"])
            restored = restore_place(self.place, kept, 0)
            self._saved = restored.round
            # Bits depend on the number of threads, which this machine might choose differently.
            self.place = replace(self.place, threads=kept[0]["threads"])
            self.executor = executors.create(self.config.executor, self.place)
        else:  # died before the first one: from the start
            restored = state.first(self.config, self.place.method, self.place.initial)
        if restored.round > self.config.rounds:
            raise SimulationError(
                f"rounds = {self.config.rounds}, but {restored.round} are done; set rounds to that or more"
            )
        self.folder.save_config(self.config)
        rows = self.folder.rewind_metrics(restored.round)
        if len(rows) < restored.round:
            _log.warning("metrics.jsonl lacks %d of the %d rounds done", restored.round - len(rows), restored.round)
        return restored, rows

    def start(
        self, callbacks: Sequence[Callback], at: State | None = None, rows: list[dict[str, Any]] | None = None
    ) -> Result:
        now = at or state.first(self.config, self.place.method, self.place.initial)
        rows = rows or []
        out = self.folder.path if self.folder else None
        for callback in callbacks:
            callback.on_start(Run(self.config, out, list(rows)))
        try:
            while now.round < self.config.rounds:
                after, row = self._round(now)
                self.place.store.mark()  # from here on, and not before, this round is never rolled back
                now = after
                rows.append(row)
                if now.round % self.config.checkpoint_every == 0:
                    self._checkpoint(now)
                for callback in callbacks:
                    callback.on_round(row)
        except BaseException as error:
            self._stopped(now, error)
            raise
        self._checkpoint(now)
        names = self.config.eval_models
        result = Result(self.config, rows, {name: now.model(name) for name in names}, out, self.place.trainer.model)
        if self.folder:
            self.folder.write("models.pt", _state_dicts(result))
        for callback in callbacks:
            callback.on_end(result)
        return result

    def _round(self, before: State) -> tuple[State, dict[str, Any]]:
        began = time.perf_counter()
        after, row = run_round(self.place, self.executor, before)
        trained = time.perf_counter()
        row["seconds"] = trained - began
        if after.round % self.config.eval_every == 0 or after.round == self.config.rounds:
            row |= self._evaluate(after)
            row["seconds_eval"] = time.perf_counter() - trained
        if self.folder:
            self.folder.append_metrics(row)
        return after, row

    def _evaluate(self, at: State) -> dict[str, float]:
        row: dict[str, float] = {}
        for name in self.config.eval_models:
            if name == "cloud" and "acc_sel" in row and torch.equal(at.cloud, at.sel):
                accuracy, loss = row["acc_sel"], row["test_loss_sel"]
            else:
                accuracy, loss = evaluate(
                    self.place.trainer.model, at.model(name), self.place.data, self.config.eval_batch_size
                )
            row[f"acc_{name}"], row[f"test_loss_{name}"] = accuracy, loss
        return row

    def _checkpoint(self, at: State) -> None:
        if self.folder is None or at.round == self._saved:
            return
        content = {
            "state": state.to_plain(at),
            "clients": self.place.store.snapshot(),
            "config": self.config.to_yaml(),
            "threads": self.place.threads,
        }
        self.folder.sync_metrics()
        checkpoint.save(self.folder.checkpoints, at.round, content)
        self.place.store.checkpointed()
        self._saved = at.round

    def _stopped(self, at: State, error: BaseException) -> None:
        """The unfinished round is forgotten and the state before it saved; the error says how to go on."""
        self.place.store.rollback()
        if self.folder is None:
            return
        path = self.folder.path
        if isinstance(error, KeyboardInterrupt):  # came at any moment, and asked for no more work
            error.args = (f"stopped at once; `fedasd resume {path}` goes on from the last checkpoint",)
            return
        lost = "nothing lost"
        try:
            self._checkpoint(at)
        except SimulationError as failure:
            lost = f"but this could not be saved: {failure}"
        if isinstance(error, ClientError):
            error.add_hint(
                f"look at it alone with `fedasd replay {path} --round {error.round + 1} --client {error.client}` "
                f"(seed {self.config.seed}); `fedasd resume {path} on_client_error=drop` goes on without such clients"
            )
        elif isinstance(error, Interrupted):
            error.args = (f"stopped after round {at.round}, {lost}; continue with `fedasd resume {path}`",)


def workplace(
    config: Config,
    data: FederatedData | None,
    model: nn.Module | None,
    clients: Path | None,
    stop: Callable[[], bool] = lambda: False,
) -> Workplace:
    """Everything that the configuration names, built."""
    data = data or federate(config)
    if data.num_clients != config.clients:
        raise ConfigError(f"clients = {config.clients}, but the data has {data.num_clients}; set clients to that")
    if config.augment != "none" and not data.is_image:
        raise ConfigError(f"augment = {config.augment}, but {data.name} has no images; use augment = none")
    try:
        device = torch.zeros(0, device=config.device).device
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"device = {config.device!r} cannot be used: {error}") from None
    data = on_device(data, device)
    if model is None:
        with torch_seeded(config.seed, Stream.INIT):
            model = models.build(
                config.model, config.model_args, num_classes=data.num_classes, input_shape=data.input_shape
            )
    else:
        model = copy.deepcopy(model)  # training changes it; the caller may want to start from it again
    flat = FlatModel(model, getattr(torch, config.dtype), str(device))
    with torch_seeded(config.seed, Stream.INIT):
        flops = step_flops(flat, data.input_shape, data.num_classes, config.batch_size)
    method = config.create_method()
    names = (*method.client_state, *(["upload"] if "all" in config.eval_models else []))
    return Workplace(
        config=config,
        data=data,
        method=method,
        trainer=Trainer(config, data, flat, stop),
        store=ClientStore(names, len(flat), flat.vector.dtype, clients),
        initial=flat.vector.clone(),
        step_flops=flops,
        threads=choose(config.threads, flops),
    )


def restore_place(place: Workplace, kept: Sequence[Mapping[str, Any]], which: int) -> State:
    """State and client records of checkpoint kept[which]."""
    initial = kept[which]["state"]["initial"]
    if initial.shape != place.initial.shape:
        raise SimulationError(
            f"the checkpoint has {initial.numel():,} parameters, the model {place.initial.numel():,}; pass the model "
            "that the run was started with"
        )
    place.store.restore(kept[which]["clients"], [k["clients"] for i, k in enumerate(kept) if i != which])
    place.initial.copy_(initial)
    return state.from_plain(kept[which]["state"], place.initial.device)


def check_same(config: Config, saved: str) -> None:
    """Refuses to go on under settings that would give another result than the run began with."""
    import yaml

    now, then = config.to_dict(), yaml.safe_load(saved)
    changed = [key for key in now if key not in _FREE and now[key] != then.get(key)]
    if changed:
        listed = ", ".join(f"{key} = {now[key]!r} (was {then.get(key)!r})" for key in changed)
        raise SimulationError(
            f"the settings changed since the last checkpoint: {listed}; put them back in config.yaml, or start a new "
            f"run. Free to change: {', '.join(sorted(_FREE))}"
        )


def _state_dicts(result: Result) -> memoryview:
    buffer = io.BytesIO()
    torch.save(
        {
            name: {k: v.to("cpu", copy=True) for k, v in result.module(name).state_dict().items()}
            for name in result.models
        },
        buffer,
    )
    return buffer.getbuffer()

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
from ..common.randomness import Stream, torch_seeded
from ..common.schema import ConfigError
from ..config import Config, from_dict
from ..data.device_data import on_device
from ..data.federated import FederatedData
from ..data.load import federate
from ..models.layer_order import pool_before_relu
from . import executors, state
from .client.flat_model import FlatModel
from .client.stacked_model import why_not
from .client.trainer import Trainer
from .cohort import Workplace
from .distributed import sharding
from .distributed.process_group import NOT_LAUNCHED, Ranks, is_agreed, joined, launched, restarts
from .distributed.sharding import Part, to_plain
from .errors import ClientError, Interrupted, SimulationError
from .executors import autotune
from .executors.stacked import as_many_as_fit
from .resource_estimate import refuse_what_cannot_fit
from .round import run_round
from .state import State
from .storage import checkpoint
from .storage.client_store import ClientStore
from .storage.run_directory import Follower, RunFolder
from .system.allocator import keep_freed_memory
from .system.signals import StopRequests
from .system.threads import choose, step_flops, threads

_log = logging.getLogger(__name__)
# Settings that may differ when a run is continued: what is done so far does not depend on them.
_FREE = {"name", "rounds", "checkpoint_every", "on_client_error", "executor", "workers", "data_dir", "out"}

_SIDE_BY_SIDE = ("processes", "torchrun")  # several workers on a machine: one thread each, unless told


@dataclass(frozen=True)
class Run:
    """What callbacks are told at the start."""

    config: Config
    out: Path | None
    metrics: list[dict[str, Any]]  # of the rounds done before, when resumed
    choice: str | None = None  # what executor = auto found fastest, and by how much


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
    with joined(config.executor) as ranks:
        ranks.check_settings(config)
        if config.out is None:
            runner = _Runner(config, data, model, None, lambda: False, ranks)
            refuse_what_cannot_fit(runner.place)
            return runner.start(callbacks)
        folder, stop = _folder(Path(config.out), ranks), StopRequests()
        again = max(ranks.gather(restarts())) > 0  # by torchrun, after a rank was lost
        if again and ranks.from_leader(folder.holds_a_run):
            return _go_on(folder, config, data, model, callbacks, ranks)
        ranks.from_leader(folder.refuse_a_run)
        runner = _Runner(config, data, model, folder, stop, ranks)
        refuse_what_cannot_fit(runner.place)
        with folder, stop:
            ranks.from_leader(lambda: folder.begin(runner.config))
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
    changes = changes or {}
    with joined(changes.get("executor", "torchrun") if launched() else "") as ranks:
        folder = _folder(Path(out), ranks)
        # Before the lock, which leaves a file: this may be no run's folder.
        config = ranks.from_leader(folder.config).replace(**changes)
        if config.executor == "torchrun" and not launched():
            raise ConfigError(
                f"{NOT_LAUNCHED}: `torchrun ... resume {out}`, or `fedasd resume {out} executor=processes`"
            )
        if config.executor != "torchrun" and ranks.world > 1:
            raise ConfigError(
                f"{out} has executor = {config.executor}; continue it under torchrun with executor=torchrun"
            )
        ranks.check_settings(config)
        return _go_on(folder, config, data, model, callbacks, ranks)


def _folder(path: Path, ranks: Ranks) -> RunFolder:
    folder = RunFolder(path)
    part = Part(folder.clients, ranks.rank, ranks.world).folder
    return folder if ranks.leads or part is None else Follower(path, part)


def _go_on(
    folder: RunFolder,
    config: Config,
    data: FederatedData | None,
    model: nn.Module | None,
    callbacks: Sequence[Callback],
    ranks: Ranks,
) -> Result:
    with folder:
        check_same(config, ranks.from_leader(lambda: folder.config().to_yaml()))
        stop = StopRequests()
        runner = _Runner(config, data, model, folder, stop, ranks)
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
        ranks: Ranks,
    ) -> None:
        part = Part(folder.clients if folder else None, ranks.rank, ranks.world)
        self.place = workplace(config, data, model, part, stop)
        self.choice: str | None = None
        if config.executor == "auto":
            refuse_what_cannot_fit(self.place)
            self.place, self.choice = autotune.resolve(self.place)
            _log.info("%s", self.choice)
        self.config, self.folder, self.ranks = self.place.config, folder, ranks
        self.executor = executors.create(self.place, ranks)
        self._saved = -1  # round of the last checkpoint

    def restore(self) -> tuple[State, list[dict[str, Any]]]:
        """The last whole checkpoint, and the metrics up to it."""
        assert self.folder is not None
        folder = self.folder
        kept = self.ranks.from_leader(lambda: checkpoint.load(folder.checkpoints))
        if kept:
            check_same(self.config, kept[0]["config"])
            self.place, restored = restore_place(self.place, kept, 0)
            self.executor = executors.create(self.place, self.ranks)
            self._saved = restored.round
        else:  # died before the first one: from the start
            restored = state.first(self.config, self.place.method, self.place.initial)
        if restored.round > self.config.rounds:
            raise SimulationError(
                f"rounds = {self.config.rounds}, but {restored.round} are done; set rounds to that or more"
            )
        folder.save(self.config, restored.round)
        rows = self.ranks.from_leader(lambda: folder.rewind_metrics(restored.round))
        if len(rows) < restored.round:
            _log.warning("metrics.jsonl lacks %d of the %d rounds done", restored.round - len(rows), restored.round)
        return restored, rows

    def start(
        self, callbacks: Sequence[Callback], at: State | None = None, rows: list[dict[str, Any]] | None = None
    ) -> Result:
        now = at or state.first(self.config, self.place.method, self.place.initial)
        rows = rows or []
        callbacks = callbacks if self.ranks.leads else ()
        out = self.folder.path if self.folder else None
        try:
            self.executor.start()
            for callback in callbacks:
                callback.on_start(Run(self.config, out, list(rows), self.choice))
            now = self._rounds(now, rows, callbacks)
        finally:
            self.executor.close()
        self._checkpoint(now)
        names = self.config.eval_models
        result = Result(self.config, rows, {name: now.model(name) for name in names}, out, self.place.trainer.model)
        if self.folder:
            self.folder.write("models.pt", _state_dicts(result))
        for callback in callbacks:
            callback.on_end(result)
        return result

    def _rounds(self, now: State, rows: list[dict[str, Any]], callbacks: Sequence[Callback]) -> State:
        """All rounds that are left; the state after the last, with its rows added to `rows`."""
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
            self.executor.close()  # first: nobody writes a record that is about to be forgotten
            self._stopped(now, error)
            raise
        return now

    def _round(self, before: State) -> tuple[State, dict[str, Any]]:
        began = time.perf_counter()
        with threads(self.place.threads):  # norms in the metrics depend on it in the last bits
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
        names = list(self.config.eval_models)
        same = "cloud" in names and "sel" in names and torch.equal(at.cloud, at.sel)
        if same:
            names.remove("cloud")
        found = dict(zip(names, self.executor.evaluate([at.model(name) for name in names]), strict=True))
        if same:
            found["cloud"] = found["sel"]
        row: dict[str, float] = {}
        for name in self.config.eval_models:
            row[f"acc_{name}"], row[f"test_loss_{name}"] = found[name]
        return row

    def _checkpoint(self, at: State) -> None:
        if self.folder is None or at.round == self._saved:
            return
        content = {
            "state": state.to_plain(at),
            "clients": to_plain(self.ranks.gather(self.place.store.snapshot())),
            "config": self.config.to_yaml(),
            "threads": self.place.threads,
            "at_once": self.place.at_once,
        }
        folder = self.folder

        def save() -> None:
            folder.sync_metrics()
            checkpoint.save(folder.checkpoints, at.round, content)

        self.ranks.from_leader(save)  # one file, when the records of all ranks are on disk: it is whole or not there
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
        if self.ranks.world > 1 and not is_agreed(error):
            return  # the other ranks are elsewhere, or gone
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
    clients: Path | Part | None,
    stop: Callable[[], bool] = lambda: False,
) -> Workplace:
    """Everything that the configuration names, built; `clients` is where records are kept, None: in memory."""
    part = clients if isinstance(clients, Part) else Part(clients)
    given = data, model
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
    pool_before_relu(model)
    keep_freed_memory()
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
        store=ClientStore(names, len(flat), flat.vector.dtype, part.folder),
        initial=flat.vector.clone(),
        step_flops=flops,
        threads=choose(config.threads or (1 if config.executor in _SIDE_BY_SIDE else 0), flops),
        at_once=_at_once(config, flat, data),
        part=part,
        stop=stop,
        given=given,
    )


def _at_once(config: Config, model: FlatModel, data: FederatedData) -> int:
    if config.executor == "serial" and config.clients_at_once > 1:
        raise ConfigError(
            f"clients_at_once = {config.clients_at_once}, but executor = serial trains one at a time; use executor = "
            "stacked"
        )
    number = config.clients_at_once or (as_many_as_fit(model, data) if config.executor == "stacked" else 1)
    if number > 1 and (reason := why_not(model.module)):
        raise ConfigError(f"clients cannot be trained at once: {reason}; use executor = serial, or clients_at_once = 1")
    return number


def restore_place(
    place: Workplace,
    kept: Sequence[Mapping[str, Any]],
    which: int,
    read_only: bool = False,
    wanted: Callable[[int], bool] = lambda _: True,
) -> tuple[Workplace, State]:
    """The place as it was, with its records, and the state, of checkpoint kept[which].  If records are only read, new
    ones will go to memory; `wanted` are the clients whose records matter."""
    initial = kept[which]["state"]["initial"]
    if initial.shape != place.initial.shape:
        raise SimulationError(
            f"the checkpoint has {initial.numel():,} parameters, the model {place.initial.numel():,}; pass the model "
            "that the run was started with"
        )
    sharding.restore(place.store, place.part, [content["clients"] for content in kept], which, read_only, wanted)
    place.initial.copy_(initial)
    # Bits depend on these two, which this machine, or another executor, might choose differently.
    place = replace(place, threads=kept[which]["threads"], at_once=kept[which].get("at_once", 1))
    return place, state.from_plain(kept[which]["state"], place.initial.device)


def check_same(config: Config, saved: str) -> None:
    """Refuses to go on under settings that would give another result than the run began with."""
    import yaml

    # Through Config: settings that came after the run began were what is now their default.
    now, then = config.to_dict(), from_dict(yaml.safe_load(saved)).to_dict()
    changed = [key for key in now if key not in _FREE and now[key] != then[key]]
    if changed:
        listed = ", ".join(f"{key} = {now[key]!r} (was {then[key]!r})" for key in changed)
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

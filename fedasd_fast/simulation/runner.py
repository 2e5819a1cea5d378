"""The loop over rounds of one run: train, evaluate, save; stop so that nothing is lost."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch

from ..callbacks import Callback, Metrics, Run
from ..common.schema import ConfigError
from ..presets import headline_model
from . import state
from .callback_notes import noting
from .client_tests import ClientTests
from .context import Context
from .distributed.process_group import ProcessGroup, is_agreed
from .distributed.sharding import pack_snapshots
from .errors import ClientError, Interrupted, SimulationError
from .evaluation import right_by_class
from .executors import create_executor
from .label_accuracy import ClientAccuracy, class_accuracies
from .result import Result
from .round import run_round
from .state import State
from .storage import checkpoint
from .storage.client_store import ClientStore
from .storage.recorded_run import stopped_at_target
from .storage.run_directory import RunDirectory
from .system.tf32 import tf32
from .system.threads import threads


class Runner:
    def __init__(
        self, context: Context, directory: RunDirectory | None, group: ProcessGroup, choice: str | None = None
    ) -> None:
        self._experiment, self._context = context.experiment, context
        assert isinstance(context.records, ClientStore)
        self._records = context.records
        self._directory, self._group, self._choice = directory, group, choice
        _check_metrics(context, directory)
        self._executor = create_executor(context, group)
        self._saved_round = -1  # of the last checkpoint
        config = context.experiment.config
        self._headline, self._best = headline_model(config), -math.inf
        self._clients = ClientAccuracy(context.experiment.data) if config.client_accuracy else None
        self._client_tests = ClientTests(context, group) if config.client_test_accuracy else None

    def run(self, callbacks: Sequence[Callback], at: State, rows: list[dict[str, Any]], saved: bool = False) -> Result:
        """All rounds from `at` on, whose metrics are `rows`; `saved`: there is a checkpoint of it."""
        config, directory = self._experiment.config, self._directory
        self._saved_round = at.round if saved else -1
        earlier = [value for row in rows if (value := row.get(f"acc_{self._headline}")) is not None]
        self._best = max(filter(math.isfinite, earlier), default=-math.inf)
        callbacks = callbacks if self._group.is_leader else ()
        watchers = self._context.watchers
        try:
            self._tell_start(watchers, rows)  # first: workers get copies of these; each rank has its own
            self._executor.start()
            self._tell_start([callback for callback in callbacks if callback not in watchers], rows)
            with tf32(config.tf32):
                at = self._rounds(at, rows, callbacks)
        finally:
            self._executor.close()
        self._checkpoint(at)
        result = self._result(at, rows)
        if directory:
            directory.write("models.pt", result.state_dicts())
        for callback in callbacks:
            with noting(callback, "on_end", f"after round {at.round}"):
                callback.on_end(result)
        return result

    def _tell_start(self, callbacks: Sequence[Callback], rows: list[dict[str, Any]]) -> None:
        out = self._directory.path if self._directory else None
        run = Run(self._experiment.config, out, cast("list[Metrics]", list(rows)), self._choice)
        for callback in callbacks:
            with noting(callback, "on_start", f"before round {len(rows) + 1}"):
                callback.on_start(run)

    def _tell_round(self, callbacks: Sequence[Callback], at: State, rows: list[dict[str, Any]]) -> None:
        for callback in callbacks if "seconds_eval" in rows[-1] else ():
            if type(callback).on_evaluate is not Callback.on_evaluate:
                with noting(callback, "on_evaluate", f"round {at.round}"):
                    callback.on_evaluate(self._result(at, list(rows)).copy())
        for callback in callbacks:
            with noting(callback, "on_round", f"round {at.round}"):
                callback.on_round(cast(Metrics, rows[-1]))

    def _rounds(self, at: State, rows: list[dict[str, Any]], callbacks: Sequence[Callback]) -> State:
        """All rounds that are left; the state after the last, with its rows added to `rows`."""
        config = self._experiment.config
        try:
            while at.round < config.rounds and not stopped_at_target(config, rows):
                if self._directory:
                    self._directory.check_in_place()
                after, row = self._round(at)
                self._records.mark()  # from here on, and not before, this round is never rolled back
                at = after
                rows.append(row)
                if at.round % config.checkpoint_every == 0:
                    self._checkpoint(at)
                self._tell_round(callbacks, at, rows)
        except BaseException as error:
            self._executor.close()  # first: no worker may write a record that is about to be rolled back
            self._stopped(at, error)
            raise
        return at

    def _round(self, before: State) -> tuple[State, dict[str, Any]]:
        config = self._experiment.config
        began = time.perf_counter()
        with threads(self._context.parallelism.threads):  # norms in the metrics depend on it in the last bits
            after, row = run_round(self._experiment, self._executor, before)
        if (failed := row.get("failed")) and not row["client_updates"]:
            raise SimulationError(
                f"all {len(failed)} clients of round {after.round} failed, so there is nothing to average "
                f"({next(iter(failed.values()))}); on_client_error = drop goes on without some clients, not without all"
            )
        trained = time.perf_counter()
        row["seconds"] = trained - began
        due = after.round % config.eval_every == 0 or after.round == config.rounds
        if due and len(self._experiment.data.test):
            with threads(self._context.parallelism.threads):  # a small model is slower on several
                row |= self._evaluate(after)
            row["seconds_eval"] = time.perf_counter() - trained
            if config.target_accuracy is not None:
                row["reached_target"] = row[f"acc_{self._headline}"] >= 100 * config.target_accuracy
            if config.keep_best:
                self._keep_best(after, row)
        if self._directory:
            self._directory.append_metrics(row)
        return after, row

    def _evaluate(self, at: State) -> dict[str, Any]:
        names = list(self._experiment.config.eval_models)
        same = "cloud" in names and "sel" in names and torch.equal(at.cloud, at.sel)
        if same:
            names.remove("cloud")
        found = dict(zip(names, self._executor.evaluate([at.model(name) for name in names]), strict=True))
        if same:
            found["cloud"] = found["sel"]
        row: dict[str, Any] = {}
        by_label = self._by_label(at, names)
        for name in self._experiment.config.eval_models:
            row[f"acc_{name}"], row[f"test_loss_{name}"] = found[name]
        for name in self._experiment.config.eval_models if by_label else ():
            row |= {f"{key}_{name}": value for key, value in by_label[name if name in names else "sel"].items()}
        if self._client_tests:
            for name in self._experiment.config.eval_models:
                summary = self._client_tests.summary(at.model(name))
                row |= {f"client_test_acc_{key}_{name}": value for key, value in summary.items()}
        return row

    def _by_label(self, at: State, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Accuracy of each class and over the clients' labels, of each model: one more pass over the test split."""
        config, data = self._experiment.config, self._experiment.data
        if not (config.class_accuracy or config.client_accuracy):
            return {}
        found: dict[str, dict[str, Any]] = {}
        for name in names:
            right = right_by_class(self._context.trainer.model, at.model(name), data, config.eval_batch_size)
            classes = class_accuracies(right, data)
            found[name] = {"class_acc": classes} if config.class_accuracy else {}
            if self._clients:
                found[name] |= {f"client_acc_{key}": value for key, value in self._clients.summary(classes).items()}
        return found

    def _keep_best(self, at: State, row: Mapping[str, Any]) -> None:
        """Before the checkpoint of this round: a run that is killed in between does the round again."""
        accuracy = row[f"acc_{self._headline}"]
        if not self._directory or not (math.isfinite(accuracy) and accuracy > self._best):
            return
        self._best = accuracy
        self._directory.write("best.pt", self._result(at, []).state_dicts())

    def _result(self, at: State, rows: list[dict[str, Any]]) -> Result:
        config, directory = self._experiment.config, self._directory
        models = {str(name): at.model(name) for name in config.eval_models}
        return Result(config, rows, models, directory.path if directory else None, self._context.trainer.model)

    def _checkpoint(self, at: State) -> None:
        directory = self._directory
        if directory is None or at.round == self._saved_round:
            return
        content = {
            "state": state.to_plain(at),
            "clients": pack_snapshots(self._group.gather(self._records.snapshot())),
            "config": self._experiment.config.to_yaml(),
            "threads": self._context.parallelism.threads,
            "at_once": self._context.parallelism.clients_at_once,
        }

        def save() -> None:
            directory.check_in_place()
            directory.sync_metrics()
            checkpoint.save(directory.checkpoints, at.round, content)

        self._group.from_leader(save)  # one file, when the records of all ranks are on disk: it is whole or not there
        self._records.checkpointed()
        self._saved_round = at.round

    def _stopped(self, at: State, error: BaseException) -> None:
        """The unfinished round is rolled back and the state before it saved; the error says how to continue."""
        self._records.rollback()
        if self._directory is None:
            return
        path = shlex.quote(str(self._directory.path))  # in commands that may be copied
        if isinstance(error, KeyboardInterrupt):  # came at any moment, and asked for no more work
            error.args = (f"stopped at once; `fedasd resume {path}` goes on from the last checkpoint",)
            return
        if self._group.world > 1 and not is_agreed(error):
            return  # the other ranks are elsewhere, or gone
        lost = "nothing lost"
        try:
            self._checkpoint(at)
        except SimulationError as failure:
            lost = f"but this could not be saved: {failure}"
        if isinstance(error, ClientError):
            error.add_hint(
                f"look at it alone with `fedasd replay {path} --round {error.round + 1} --client {error.client}` "
                f"(seed {self._experiment.config.seed}); `fedasd resume {path} on_client_error=drop` goes on without "
                "such clients"
            )
        elif isinstance(error, Interrupted):
            error.args = (f"stopped after round {at.round}, {lost}; continue with `fedasd resume {path}`",)


def _check_metrics(context: Context, directory: RunDirectory | None) -> None:
    """What was asked for that this run cannot give."""
    config = context.experiment.config
    if config.keep_best and directory is None:
        raise ConfigError("keep_best = true keeps the best models in the run directory, but there is none; set out")
    asked = [
        key
        for key in ("class_accuracy", "client_accuracy", "client_test_accuracy", "target_accuracy", "keep_best")
        if getattr(config, key) not in (False, None)
    ]
    if asked and not len(context.experiment.data.test):
        raise ConfigError(f"{asked[0]} = {getattr(config, asked[0])} needs test samples, but the data have none")

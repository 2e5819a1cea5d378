"""The loop over rounds of one run: train, evaluate, save; stop so that nothing is lost."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from typing import Any

import torch

from ..callbacks import Callback
from . import state
from .context import Context
from .distributed.process_group import ProcessGroup, is_agreed
from .distributed.sharding import pack_snapshots
from .errors import ClientError, Interrupted, SimulationError
from .executors import create_executor
from .result import Result, Run
from .round import run_round
from .state import State
from .storage import checkpoint
from .storage.client_store import ClientStore
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
        self._executor = create_executor(context, group)
        self._saved_round = -1  # of the last checkpoint

    def run(self, callbacks: Sequence[Callback], at: State, rows: list[dict[str, Any]], saved: bool = False) -> Result:
        """All rounds from `at` on, whose metrics are `rows`; `saved`: there is a checkpoint of it."""
        config, directory = self._experiment.config, self._directory
        self._saved_round = at.round if saved else -1
        callbacks = callbacks if self._group.is_leader else ()
        out = directory.path if directory else None
        try:
            self._executor.start()
            for callback in callbacks:
                callback.on_start(Run(config, out, list(rows), self._choice))
            with tf32(config.tf32):
                at = self._rounds(at, rows, callbacks)
        finally:
            self._executor.close()
        self._checkpoint(at)
        models = {str(name): at.model(name) for name in config.eval_models}
        result = Result(config, rows, models, out, self._context.trainer.model)
        if directory:
            directory.write("models.pt", result.state_dicts())
        for callback in callbacks:
            callback.on_end(result)
        return result

    def _rounds(self, at: State, rows: list[dict[str, Any]], callbacks: Sequence[Callback]) -> State:
        """All rounds that are left; the state after the last, with its rows added to `rows`."""
        config = self._experiment.config
        try:
            while at.round < config.rounds:
                if self._directory:
                    self._directory.check_in_place()
                after, row = self._round(at)
                self._records.mark()  # from here on, and not before, this round is never rolled back
                at = after
                rows.append(row)
                if at.round % config.checkpoint_every == 0:
                    self._checkpoint(at)
                for callback in callbacks:
                    callback.on_round(row)
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
        if after.round % config.eval_every == 0 or after.round == config.rounds:
            with threads(self._context.parallelism.threads):  # a small model is slower on several
                row |= self._evaluate(after)
            row["seconds_eval"] = time.perf_counter() - trained
        if self._directory:
            self._directory.append_metrics(row)
        return after, row

    def _evaluate(self, at: State) -> dict[str, float]:
        names = list(self._experiment.config.eval_models)
        same = "cloud" in names and "sel" in names and torch.equal(at.cloud, at.sel)
        if same:
            names.remove("cloud")
        found = dict(zip(names, self._executor.evaluate([at.model(name) for name in names]), strict=True))
        if same:
            found["cloud"] = found["sel"]
        row: dict[str, float] = {}
        for name in self._experiment.config.eval_models:
            row[f"acc_{name}"], row[f"test_loss_{name}"] = found[name]
        return row

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

"""Callback that sends metrics to MLflow: a server, a database or a folder, as its tracking URI says."""

from __future__ import annotations

import importlib
import os
import time
from typing import TYPE_CHECKING, Any

from ..common import dotted
from ..common.schema import ConfigError
from .base import Callback
from .events import Run
from .metrics import Metrics, numeric_metrics

if TYPE_CHECKING:
    from ..simulation.result import Result

_TAG = "fedasd_run"  # says which run directory a run of MLflow belongs to
_EVERY_ROUND = "client_updates"  # a metric that tells which rounds are there
_LONGEST = 500  # characters of a parameter that every store takes


class MLflow(Callback):
    """Writes the metrics of every round and all settings to MLflow."""

    def __init__(self, experiment: str | None = None, tracking_uri: str | None = None) -> None:
        """Without an experiment MLFLOW_EXPERIMENT_NAME, or `fedasd`; without a URI MLFLOW_TRACKING_URI, or MLflow's
        default, which is on this machine."""
        self.experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME", "fedasd")
        self.tracking_uri, self.run_id = tracking_uri, ""
        self.client: Any = None
        try:
            self.mlflow = importlib.import_module("mlflow")
        except ImportError:
            raise ModuleNotFoundError(
                "writing for MLflow needs the package mlflow: pip install 'fedasd-fast[mlflow]'"
            ) from None

    def on_start(self, run: Run) -> None:
        try:
            self.client = self.mlflow.MlflowClient(self.tracking_uri)  # the process's own settings stay as they are
            self.run_id = self._continued(run) or self._created(run)
            known = self.client.get_metric_history(self.run_id, _EVERY_ROUND)
        except self.mlflow.exceptions.MlflowException as error:  # no server, a URI that it does not know
            reason = str(error).strip().splitlines()[0]
            raise ConfigError(
                f"MLflow cannot be used: {reason}; sqlite:///mlflow.db as its tracking URI needs no server"
            ) from None
        self._last = max((metric.step for metric in known), default=0)

    def _continued(self, run: Run) -> str:
        """The run that has been there for this run directory; empty: none."""
        found = self.client.get_experiment_by_name(self.experiment)
        if found is None or run.tracker_id is None:
            return ""
        runs = self.client.search_runs([found.experiment_id], f"tags.{_TAG} = '{run.tracker_id}'", max_results=1)
        if not runs:
            return ""
        self.client.update_run(runs[0].info.run_id, status="RUNNING")
        return str(runs[0].info.run_id)

    def _created(self, run: Run) -> str:
        found = self.client.get_experiment_by_name(self.experiment)
        experiment = found.experiment_id if found else self.client.create_experiment(self.experiment)
        tags = {} if run.tracker_id is None else {_TAG: run.tracker_id}
        made = str(self.client.create_run(experiment, tags=tags, run_name=run.tracker_name).info.run_id)
        for key, value in dotted.flatten(run.config.to_dict()):
            self.client.log_param(made, key, str(value)[:_LONGEST])
        return made

    def on_round(self, metrics: Metrics) -> None:
        if metrics["round"] <= self._last:  # a resumed run repeats rounds that are there already
            return
        made, now = self.mlflow.entities.Metric, int(1000 * time.time())
        values = [made(key, value, now, metrics["round"]) for key, value in numeric_metrics(metrics).items()]
        self.client.log_batch(self.run_id, metrics=values)

    def on_end(self, result: Result) -> None:
        self.client.set_terminated(self.run_id)

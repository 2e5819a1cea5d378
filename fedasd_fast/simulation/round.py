"""A round as a function: state in, state and metrics out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..algorithms import Updates
from .aggregation import fixed_point
from .cohort import client_tasks
from .errors import SimulationError
from .executors import Executor
from .experiment import Experiment
from .state import State


def run_round(experiment: Experiment, executor: Executor, state: State) -> tuple[State, dict[str, Any]]:
    server = experiment.server(state)
    tasks = client_tasks(experiment, state.round)
    sums = executor.run(server, tasks)
    reports = sorted((r for r in sums.reports if r.error is None), key=lambda r: r.client)
    finished = {report.client for report in reports}
    metrics: dict[str, Any] = {
        "round": state.round + 1,
        "lr": server.lr,
        "client_updates": len(finished),
        "steps": sum(report.steps for report in reports),
        "samples": sum(report.samples for report in reports),
    }
    if failed := {str(r.client): r.error for r in sums.reports if r.error}:
        metrics["failed"] = failed
    after: dict[str, Any] = {"round": state.round + 1}
    if sums.all_change is not None and state.all_change is not None:
        after["all_change"] = state.all_change + sums.all_change
    weight = sum(task.weight for task in tasks if task.client in finished)
    if weight == 0:  # no client returned a model that counts: nothing to combine
        return replace(state, **after), metrics
    metrics["loss"] = float(np.average([r.loss for r in reports], weights=[r.steps for r in reports]))
    metrics["client_distance"] = float(np.mean([r.distance for r in reports]))
    mean = fixed_point.to_float(sums.mean) / weight
    change = {name: fixed_point.to_float(total) for name, total in sums.change.items()}
    for name in experiment.method.sent:
        change[name] /= weight
    share = {task.client: task.weight / weight for task in tasks}
    updates = Updates(
        np.array([share[r.client] for r in reports]),
        np.array([r.steps for r in reports]),
        np.array([r.distance for r in reports]),
    )
    method = experiment.method
    try:
        cloud, kept = method.combine(replace(server, updates=updates), mean, change)
    except Exception as error:
        name = type(method).__name__
        raise SimulationError(
            f"{name}.combine failed in round {state.round + 1}: {type(error).__name__}: {error}"
        ) from error
    cloud, sel = cloud.to(state.cloud.dtype), mean.to(state.cloud.dtype)
    metrics["drift"] = float(torch.linalg.vector_norm(cloud - state.cloud))
    return replace(state, **after, cloud=cloud, sel=sel, server=kept), metrics

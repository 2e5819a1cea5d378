"""A round as a function: state in, state and metrics out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..algorithms import Updates
from .aggregation import fixed_point
from .client.hook_errors import vector_like
from .errors import SimulationError
from .executors import Executor
from .experiment import Experiment
from .round_plan import plan_round
from .state import State
from .traffic import traffic


def run_round(experiment: Experiment, executor: Executor, state: State) -> tuple[State, dict[str, Any]]:
    server = experiment.server(state)
    plan = plan_round(experiment, state)
    tasks = plan.tasks
    sums = executor.run(server, tasks)
    reports = sums.reports
    finished, steps = reports.clients, reports.column("steps")
    metrics: dict[str, Any] = {
        "round": state.round + 1,
        "lr": server.lr,
        "client_updates": len(finished),
        "steps": int(steps.sum()),
        "samples": int(reports.column("samples").sum()),
        **traffic(experiment, state.cloud, len(tasks) + plan.cut, len(finished)),
    }
    if reports.errors:
        metrics["failed"] = {str(client): error for client, error in reports.errors.items()}
    after: dict[str, Any] = {"round": state.round + 1, "clock": plan.clock}
    if plan.clock:
        metrics |= {"simulated_seconds": plan.seconds, "simulated_clock": plan.clock.seconds}
        if experiment.config.devices.deadline is not None:
            metrics["cut_by_deadline"] = plan.cut
    if state.loss_scale:
        skipped = int(reports.column("skipped").sum())
        metrics |= {"loss_scale": state.loss_scale.scale, "steps_skipped": skipped}
        after["loss_scale"] = state.loss_scale.after(metrics["steps"], skipped)
    if sums.all_change is not None and state.all_change is not None:
        after["all_change"] = state.all_change + sums.all_change
    weight = sum(tasks.weights[np.isin(tasks.clients, finished)].tolist())  # one after the other, as always
    if weight == 0:  # no client returned a model that counts: nothing to combine
        return replace(state, **after), metrics
    metrics["loss"] = float(np.average(reports.column("loss"), weights=steps))
    metrics["client_distance"] = float(reports.column("distance").mean())
    whole_mean, layout = fixed_point.to_float(sums.mean) / weight, experiment.layout
    mean = layout.personal(layout.trained(whole_mean), server.model.double())  # what is not sent has not moved
    change = {name: fixed_point.to_float(layout.trained(total)) for name, total in sums.change.items()}
    for name in experiment.method.sent:
        change[name] /= weight
    order = np.argsort(tasks.clients)
    rows = order[np.searchsorted(tasks.clients, finished, sorter=order)]
    taken = np.maximum(1, steps - reports.column("skipped"))  # as `finish` and `contribution` count them
    updates = Updates(tasks.weights[rows] / weight, taken, reports.column("distance"))
    method = experiment.method
    try:
        cloud, kept = method.combine(replace(server, updates=updates), mean, change)
        cloud = vector_like(cloud, mean, "the model that it returned")
        for name in method.server_state:
            vector_like(kept.get(name), mean, f"the state {name} that it returned")
    except Exception as error:
        name = type(method).__name__
        raise SimulationError(
            f"{name}.combine failed in round {state.round + 1}: {type(error).__name__}: {error}"
        ) from error
    # Statistics are averaged whatever the method is, and so is what stays with clients: for evaluation only.
    cloud = layout.personal(layout.whole(cloud, layout.statistics(whole_mean)), whole_mean)
    cloud, sel = cloud.to(state.cloud.dtype), whole_mean.to(state.cloud.dtype)
    metrics["drift"] = float(torch.linalg.vector_norm(layout.shared(layout.trained(cloud - state.cloud))))
    kept = {name: layout.whole(layout.shared(vector)) for name, vector in kept.items()}
    return replace(state, **after, cloud=cloud, sel=sel, server=kept), metrics

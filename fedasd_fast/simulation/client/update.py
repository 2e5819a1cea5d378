"""A client update: local training from the server's model, checked, with what the client keeps afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...algorithms import Client, Server
from ..aggregation import fixed_point
from ..cohort import ClientTask
from ..errors import ClientError, SimulationError
from ..experiment import Experiment
from ..storage.client_store import ClientRecords
from .hook_errors import HookError, calling, reason_of, vector_like
from .trainer import LocalRun, Trainer


@dataclass(frozen=True)
class ClientUpdate:
    """Nothing of it has been added to a sum or written to a record yet."""

    client: Client
    record: dict[str, Tensor] | None  # what the client wrote last
    run: LocalRun
    state: dict[str, Tensor]  # what it keeps now, and what it sends beside its model
    model: Tensor  # [N] what it sends as its model


def load_client(experiment: Experiment, id: int, record: Mapping[str, Tensor] | None, like: Tensor) -> Client:
    """The client with what its record says, zeros like the vector `like` if it has none yet."""
    names, layout = experiment.method.client_state, experiment.layout
    state = {name: layout.trained(record[name]).to(like.device) if record else torch.zeros_like(like) for name in names}
    return Client(id, experiment.relative_size(id), state, experiment.label_counts(id))


def train_client(
    trainer: Trainer, records: ClientRecords, server: Server, task: ClientTask, losses: list[Tensor] | None = None
) -> ClientUpdate:
    """Trains one client.  Whatever goes wrong is a ClientError; `losses` has the steps until then."""
    losses = [] if losses is None else losses
    record = records.read(task.client)
    client = load_client(trainer.experiment, task.client, record, trainer.model.vector)
    server = trainer.experiment.personal(server, record["upload"] if record and "upload" in record else None)
    try:
        method = trainer.experiment.method
        with calling(method, "correction"):
            correction = method.correction(server, client)
        run = trainer.train(server, client, correction, task.epochs, losses)
    except SimulationError:
        raise
    except Exception as error:
        raise ClientError(client.id, server.round, len(losses), _with_remedy(reason_of(error))) from error
    return checked_update(trainer.experiment, server, client, record, run)


def _with_remedy(reason: str) -> str:
    if "more than 1 value per channel" not in reason:  # torch's words for a batch of one sample
        return reason
    return (
        f"{reason}; BatchNorm needs two samples: choose a batch_size that leaves no client a last batch of one, or "
        "set on_client_error = drop"
    )


def checked_update(
    experiment: Experiment, server: Server, client: Client, record: dict[str, Tensor] | None, run: LocalRun
) -> ClientUpdate:
    """What the client keeps; a ClientError if its training cannot be used."""
    steps = len(run.losses)
    bad = (~run.losses.isfinite()).nonzero()
    if len(bad):
        reason = f"the loss is {run.losses[bad[0]].item()}"
        if server.loss_scale:
            reason += "; outputs may have left the range of float16: use precision = bfloat16"
        raise ClientError(client.id, server.round, int(bad[0]), reason)
    try:
        updates = max(1, steps - run.skipped)
        state = finish(experiment, server, client, run, updates)
        model = contribution(experiment, server, client, run, updates)
    except HookError as error:
        raise ClientError(client.id, server.round, steps - 1, str(error)) from error
    sent = {} if model is run.end else {"contribution": model}
    for name, vector in {"model": run.end, **sent, **state}.items():
        if not fixed_point.in_range(vector):
            reason = f"diverged: the largest entry of its {name} is {vector.abs().max().item()}"
            raise ClientError(client.id, server.round, steps - 1, reason)
    return ClientUpdate(client, record, run, state, model)


def finish(experiment: Experiment, server: Server, client: Client, run: LocalRun, steps: int) -> dict[str, Tensor]:
    """What the client keeps, and what it sends beside its model."""
    method = experiment.method
    client = client if run.dual is None else replace(client, dual=run.dual)
    with calling(method, "finish"):
        end = experiment.layout.trained(run.end)
        state = method.finish(server, client, end, steps)
        names = (*method.client_state, *method.sent)
        missing = [name for name in names if name not in state]
        if missing:
            raise KeyError(f"{', '.join(missing)} not in what it returned")
        return {name: experiment.layout.shared(vector_like(state[name], end, name)) for name in names}


def contribution(experiment: Experiment, server: Server, client: Client, run: LocalRun, steps: int) -> Tensor:
    """What the client sends as its model, [N]."""
    if "contribution" not in experiment.hooks:
        return run.end
    layout = experiment.layout
    end = layout.trained(run.end)
    with calling(experiment.method, "contribution"):
        sent = vector_like(experiment.method.contribution(server, client, end, steps), end, "what it returned")
    return layout.whole(layout.personal(sent, end), layout.statistics(run.end))

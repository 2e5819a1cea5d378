"""Forgetting: what a client's model loses in one round of local training (figure 1 of the paper).

Starting from the run's global model, each selected client trains for one round with each method, on the same samples in
the same order.  The test accuracy of each class before and after shows what was learnt, on labels that the client has,
and what was forgotten, on labels of which it has few samples or none.  Nothing is written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..common.progress import ProgressFunction, no_progress
from ..config import Config
from ..data.federated import FederatedData
from ..data.host_to_device import send
from ..data.transform import to_float
from ..simulation.client.flat_model import FlatModel, channels_last
from ..simulation.client.trainer import Trainer
from ..simulation.client.update import train_client
from ..simulation.cohort import ClientTask
from ..simulation.context import Context
from ..simulation.errors import SimulationError
from ..simulation.experiment import Experiment
from ..simulation.system.threads import threads
from .label_groups import LABEL_GROUPS, label_groups, label_proportions
from .loaded_run import LoadedRun
from .selection import select_clients

DEFAULT_METHODS = ("fedavg", "fedavg+asd", "fedntd", "fedntd+asd")


@dataclass(frozen=True)
class GroupChange:
    """Change of accuracy over the labels of one group, see label_groups."""

    pairs: int  # of a client and a label, in this group
    mean: float | None  # over pairs, in percentage points; None if there are none
    error: float | None  # standard error over the clients' means; None if fewer than two clients have such labels


@dataclass(frozen=True)
class Forgetting:
    round: int  # of the global model
    lr: float
    epochs: int
    clients: list[int]
    counts: list[list[int]]  # [clients][C] samples of each label
    shares: list[list[float]]  # [clients][C]
    before: list[float | None]  # [C] accuracy (%) of the global model; None: no test sample of this class
    after: dict[str, list[list[float | None]]]  # by method: [clients][C]
    overall_before: float  # mean over the classes with test samples
    overall: dict[str, float]  # by method: the same after training, mean over clients
    groups: dict[str, dict[str, GroupChange]]  # by method, then by label group

    def points(self, method: str) -> list[tuple[int, int, float, float]]:
        """Client, class, proportion of the class in the client's samples, change in percentage points."""
        return [
            (client, label, proportion, after - before)
            for client, own, row in zip(self.clients, self.shares, self.after[method], strict=True)
            for label, (proportion, before, after) in enumerate(zip(own, self.before, row, strict=True))
            if before is not None and after is not None
        ]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        name = max(len(method) for method in self.after)
        labels = ", ".join(f"{self.groups[next(iter(self.after))][group].pairs} {group}" for group in LABEL_GROUPS)
        lines = [
            f"Forgetting in round {self.round + 1}, by {len(self.clients)} clients: change of test accuracy in points, "
            "on labels that a client has",
            f"  {'':{name}}   {'much of':16}{'little of':16}{'none of':16}all: {self.overall_before:.1f} % before",
        ]
        for method, groups in self.groups.items():
            cells = "".join(f"{_cell(groups[group]):16}" for group in LABEL_GROUPS)
            lines.append(f"  {method:{name}}   {cells}{self.overall[method]:.1f} %")
        return "\n".join([*lines, f"  pairs of a client and a label: {labels}"])


def forgetting(
    run: LoadedRun,
    *,
    clients: int | tuple[int, ...] = 10,
    methods: tuple[str, ...] = DEFAULT_METHODS,
    seed: int = 0,
    progress: ProgressFunction = no_progress,
) -> Forgetting:
    """`clients`: their number, drawn with `seed`, or their ids.

    ASD's settings are those of the run, also for methods that the run did not use; FedNTD's weight is ASD's, as in the
    paper.
    """
    if not methods or len(set(methods)) < len(methods):
        raise SimulationError(f"methods = {list(methods)}; expected different methods, at least one")
    trainers = {method: trainer_for(run.context, method) for method in methods}
    experiment, records = run.context.experiment, run.context.records
    data, ids = experiment.data, select_clients(experiment.data, clients, seed)
    model, size, epochs = run.context.trainer.model, experiment.config.eval_batch_size, experiment.config.local_epochs
    server = experiment.server(run.state)
    with threads(run.context.parallelism.threads), model.holding(server.model):
        before = class_accuracy(model, server.model, data, size)
        after = {}
        for method, trainer in trainers.items():
            rows = []
            for done, k in enumerate(ids):
                progress(f"clients trained with {method}", done, len(ids))
                end = train_client(trainer, records, server, ClientTask(k, epochs, 1.0)).run.end
                rows.append(class_accuracy(model, end, data, size))
            after[method] = torch.stack(rows)
    counts = torch.stack([data.label_counts(k) for k in ids]).cpu()
    return Forgetting(
        round=run.state.round, lr=server.lr, epochs=epochs, clients=ids,
        counts=counts.tolist(), shares=[label_proportions(own) for own in counts],
        before=_numbers(before), after={method: [_numbers(row) for row in rows] for method, rows in after.items()},
        overall_before=float(before.nanmean()),
        overall={method: float(rows.nanmean()) for method, rows in after.items()},
        groups={method: grouped_change(counts, rows - before) for method, rows in after.items()},
    )  # fmt: skip


def trainer_for(context: Context, method: str, weighting: str | None = None) -> Trainer:
    """Local training with another method, and perhaps other weights of its distillation, in the context of the run."""
    own: Config = context.experiment.config
    # The combination of augment = epoch and teacher = cache is refused for methods with a teacher; a run without one
    # may have it.
    teacher = "recompute" if own.augment == "epoch" and own.teacher == "cache" else own.teacher
    config = own.replace(method=method, teacher=teacher)
    if weighting:
        config = config.replace(asd={"weighting": weighting})
    built = config.create_method()
    if config.base_method != own.base_method and (built.client_state or built.server_state):
        raise SimulationError(
            f"method = {method} keeps state from round to round, which this run of {own.method} does not have; choose "
            f"methods without state, such as {', '.join(DEFAULT_METHODS)}, or analyse a run of {config.base_method}"
        )
    return Trainer(Experiment(config, context.experiment.data, built), context.trainer.model, context.trainer.stop)


def class_accuracy(model: FlatModel, vector: Tensor, data: FederatedData, batch_size: int) -> Tensor:
    """Test accuracy (%) of each class, float64 [C] on the CPU; NaN for classes without test samples."""
    if not len(data.test):
        raise SimulationError(f"{data.name} has no test set, so there is no accuracy; pass data with one")
    device, dtype, classes = model.vector.device, model.vector.dtype, data.num_classes
    right = torch.zeros(classes, dtype=torch.int64)
    with model.holding(vector) as module, torch.inference_mode():
        module.eval()
        for inputs, targets in zip(
            data.test.inputs.split(batch_size), data.test.targets.split(batch_size), strict=True
        ):
            x = to_float(send(inputs, device), data.mean, data.std, dtype)
            found = module(channels_last(x)).argmax(1).cpu()
            y = targets.cpu()
            right += torch.bincount(y[found == y], minlength=classes)
    return 100.0 * right.double() / torch.bincount(data.test.targets.cpu(), minlength=classes)


def grouped_change(counts: Tensor, change: Tensor) -> dict[str, GroupChange]:
    """From counts [clients, C] and changes [clients, C], NaN for classes without test samples."""
    found: dict[str, list[np.ndarray[Any, Any]]] = {group: [] for group in LABEL_GROUPS}
    for own, row in zip(counts, change, strict=True):
        for group, mask in label_groups(own).items():
            values = row[mask & ~row.isnan()]
            if len(values):
                found[group].append(values.numpy())
    return {group: _summary(values) for group, values in found.items()}


def _summary(by_client: Sequence[np.ndarray[Any, Any]]) -> GroupChange:
    if not by_client:
        return GroupChange(0, None, None)
    pairs = np.concatenate(by_client)
    means = [values.mean() for values in by_client]
    error = float(np.std(means, ddof=1) / math.sqrt(len(means))) if len(means) > 1 else None
    return GroupChange(len(pairs), float(pairs.mean()), error)


def _cell(change: GroupChange) -> str:
    if change.mean is None:
        return "-"
    return f"{change.mean:+.1f}" + ("" if change.error is None else f" +- {change.error:.1f}")


def _numbers(values: Tensor) -> list[float | None]:
    """JSON has no NaN."""
    return [None if math.isnan(value) else value for value in values.tolist()]

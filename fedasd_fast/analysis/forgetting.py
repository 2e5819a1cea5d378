"""What a client's model forgets in one round (figure 1 of the paper).

From the run's global model each chosen client trains for a round, once with each method, on the same samples in the
same order.  Test accuracy of each class before and after shows what was learnt, on the labels that the client has, and
what was lost, on those that it has few of or none.  Nothing is written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..common.progress import Tell, silent
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
from .label_groups import GROUPS, chosen, label_groups, shares
from .loaded_run import OpenedRun

METHODS = ("fedavg", "fedavg+asd", "fedntd", "fedntd+asd")


@dataclass(frozen=True)
class GroupChange:
    """Over the labels of one group, see label_groups."""

    pairs: int  # of a client and a label
    mean: float | None  # percentage points: the mean over pairs; None: there are none
    error: float | None  # standard error of the clients' own means; None: fewer than two clients have such labels


@dataclass(frozen=True)
class Forgetting:
    round: int  # rounds that the global model has behind it
    lr: float
    epochs: int
    clients: list[int]
    counts: list[list[int]]  # [clients][C] samples of each label
    shares: list[list[float]]  # [clients][C]
    before: list[float | None]  # [C] accuracy in percent of the global model; None: no test sample of this class
    after: dict[str, list[list[float | None]]]  # of each method: [clients][C]
    overall_before: float  # mean over the classes that are tested
    overall: dict[str, float]  # of each method: the same after training, mean over clients
    groups: dict[str, dict[str, GroupChange]]  # of each method: much, little, none

    def points(self, method: str) -> list[tuple[int, int, float, float]]:
        """Client, class, the class's share of the client's samples, change in percentage points."""
        return [
            (client, label, share, after - before)
            for client, own, row in zip(self.clients, self.shares, self.after[method], strict=True)
            for label, (share, before, after) in enumerate(zip(own, self.before, row, strict=True))
            if before is not None and after is not None
        ]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        name = max(len(method) for method in self.after)
        labels = ", ".join(f"{self.groups[next(iter(self.after))][group].pairs} {group}" for group in GROUPS)
        lines = [
            f"Forgetting in round {self.round + 1}, by {len(self.clients)} clients: change of test accuracy in points, "
            "on labels that a client has",
            f"  {'':{name}}   {'much of':16}{'little of':16}{'none of':16}all: {self.overall_before:.1f} % before",
        ]
        for method, groups in self.groups.items():
            cells = "".join(f"{_cell(groups[group]):16}" for group in GROUPS)
            lines.append(f"  {method:{name}}   {cells}{self.overall[method]:.1f} %")
        return "\n".join([*lines, f"  pairs of a client and a label: {labels}"])


def forgetting(
    run: OpenedRun,
    *,
    clients: int | tuple[int, ...] = 10,
    methods: tuple[str, ...] = METHODS,
    seed: int = 0,
    tell: Tell = silent,
) -> Forgetting:
    """`clients`: how many, drawn with `seed`, or which.  ASD's settings are those of the run, also for methods that the
    run did not use; so is FedNTD's weight, as in the paper."""
    if not methods or len(set(methods)) < len(methods):
        raise SimulationError(f"methods = {list(methods)}; expected different methods, at least one")
    trainers = {method: trainer_for(run.context, method) for method in methods}
    experiment, records = run.context.experiment, run.context.records
    data, ids = experiment.data, chosen(experiment.data, clients, seed)
    model, size, epochs = run.context.trainer.model, experiment.config.eval_batch_size, experiment.config.local_epochs
    server = experiment.server(run.state)
    with threads(run.context.parallelism.threads), model.holding(server.model):
        before = class_accuracy(model, server.model, data, size)
        after = {}
        for method, trainer in trainers.items():
            rows = []
            for done, k in enumerate(ids):
                tell(f"clients trained with {method}", done, len(ids))
                end = train_client(trainer, records, server, ClientTask(k, epochs, 1.0)).run.end
                rows.append(class_accuracy(model, end, data, size))
            after[method] = torch.stack(rows)
    counts = torch.stack([data.label_counts(k) for k in ids]).cpu()
    return Forgetting(
        round=run.state.round, lr=server.lr, epochs=epochs, clients=ids,
        counts=counts.tolist(), shares=[shares(own) for own in counts],
        before=_numbers(before), after={method: [_numbers(row) for row in rows] for method, rows in after.items()},
        overall_before=float(before.nanmean()),
        overall={method: float(rows.nanmean()) for method, rows in after.items()},
        groups={method: grouped_change(counts, rows - before) for method, rows in after.items()},
    )  # fmt: skip


def trainer_for(context: Context, method: str, weighting: str | None = None) -> Trainer:
    """The local training of another method, perhaps with other weights of the distillation, in the run's context."""
    own: Config = context.experiment.config
    # A cache of other views than the student's is refused with a teacher, and means nothing in a run without one.
    teacher = "recompute" if own.augment == "epoch" and own.teacher == "cache" else own.teacher
    config = own.replace(method=method, teacher=teacher)
    if weighting:
        config = config.replace(asd={"weighting": weighting})
    built = config.create_method()
    if config.base_method != own.base_method and (built.client_state or built.server_state):
        raise SimulationError(
            f"method = {method} keeps state from round to round, which this run of {own.method} does not have; choose "
            f"methods without state, such as {', '.join(METHODS)}, or look at a run of {config.base_method}"
        )
    return Trainer(Experiment(config, context.experiment.data, built), context.trainer.model, context.trainer.stop)


def class_accuracy(model: FlatModel, vector: Tensor, data: FederatedData, batch_size: int) -> Tensor:
    """Test accuracy of each class in percent, float64 [C] on the CPU; NaN where there is no sample of it."""
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
    """From counts [clients, C] and changes [clients, C], NaN where a class is not tested."""
    found: dict[str, list[np.ndarray[Any, Any]]] = {group: [] for group in GROUPS}
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

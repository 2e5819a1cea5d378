"""The work of a round: who trains, for how long, and how much each model counts; and the sums that come back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from ..algorithms import Client, Cohort, Method, Server
from ..config import Config
from ..data.federated import FederatedData
from . import sampling
from .aggregation import fixed_point
from .client.trainer import LocalRun, Trainer
from .distributed.sharding import Part
from .errors import ClientError, SimulationError
from .storage.client_store import ClientStore
from .system.threads import cores


@dataclass(frozen=True)
class Task:
    client: int
    epochs: int
    weight: float  # of its model in the mean; the weights of a round sum to 1


@dataclass(frozen=True)
class Report:
    """What is known of a client afterwards."""

    client: int
    steps: int
    samples: int
    loss: float  # mean over its steps
    distance: float = 0.0  # ||w_k - w_t||
    error: str | None = None  # why it was dropped


@dataclass
class Sums:
    """Running sums over the participants, in fixed point: any order and any grouping gives the same bits."""

    mean: Tensor  # [P] sum of weight_k w_k
    change: dict[str, Tensor]  # [P] sum over participants of the change of each client state, over K
    all_change: Tensor | None  # [P] sum of the change of share_k (last upload - initial)
    reports: list[Report] = field(default_factory=list)

    @staticmethod
    def over(rows: Tensor, client_state: Sequence[str]) -> Sums:
        """The sums as views of int64 [n, P]: mean, the change of each client state, all_change if that is tracked."""
        mean, *change = rows
        all_change = change.pop() if len(change) > len(client_state) else None
        return Sums(mean, dict(zip(client_state, change, strict=True)), all_change)

    def add(self, other: Sums) -> None:
        self.mean += other.mean
        for name, total in other.change.items():
            self.change[name] += total
        if self.all_change is not None and other.all_change is not None:
            self.all_change += other.all_change
        self.reports += other.reports


@dataclass(frozen=True)
class Workplace:
    """What is needed to train any client; every worker has one."""

    config: Config
    data: FederatedData
    method: Method
    trainer: Trainer
    store: ClientStore
    initial: Tensor  # [P]
    step_flops: int  # of a local step
    threads: int
    at_once: int  # clients that are trained together
    part: Part  # of the clients' records that are kept here
    stop: Callable[[], bool] = lambda: False  # asked for in every local step
    given: tuple[FederatedData | None, nn.Module | None] = (None, None)  # what takes the place of what config names

    @property
    def workers(self) -> int:
        """How many processes on this machine train at once."""
        if self.config.executor == "torchrun":
            return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        if self.config.executor != "processes":
            return 1
        if self.config.workers:
            return self.config.workers
        if self.initial.is_cuda:
            return torch.cuda.device_count() if self.config.device == "cuda" else 1
        return max(1, cores() // self.threads)

    @cached_property
    def total_size(self) -> int:
        return int(self.data.sizes.sum())

    def relative_size(self, k: int) -> float:
        """n_k / mean n."""
        return float(self.data.sizes[k]) * self.data.num_clients / self.total_size

    def share(self, k: int) -> float:
        """The client's part in the all-clients average."""
        return float(self.data.sizes[k]) / self.total_size if self.method.weighted else 1 / self.data.num_clients

    def client(self, k: int, record: Mapping[str, Tensor] | None) -> Client:
        """Client k with what its record says, zeros if it has none yet."""
        device, names = self.initial.device, self.method.client_state
        state = {name: record[name].to(device) if record else torch.zeros_like(self.initial) for name in names}
        return Client(k, self.relative_size(k), state)

    @property
    def sum_rows(self) -> int:
        """Vectors [P] that a round sums up, see Sums.over."""
        return 1 + len(self.method.client_state) + ("all" in self.config.eval_models)

    def empty_sums(self) -> Sums:
        rows = torch.zeros(self.sum_rows, len(self.initial), dtype=torch.int64, device=self.initial.device)
        return Sums.over(rows, self.method.client_state)

    def groups(self, tasks: Sequence[Task]) -> list[list[Task]]:
        """Who is trained at once, those of about the same size: a function of the tasks, whoever trains them."""
        if self.at_once == 1:
            return [[task] for task in tasks]
        alike = sorted(tasks, key=lambda task: (-int(self.data.sizes[task.client]), task.client))
        number = -(-len(alike) // self.at_once)
        ends = [len(alike) * i // number for i in range(number + 1)] if alike else []
        return [alike[start:end] for start, end in pairwise(ends)]

    def expected_steps(self, task: Task) -> int:
        return task.epochs * -(-int(self.data.sizes[task.client]) // self.config.batch_size)


def tasks(config: Config, data: FederatedData, method: Method, round: int) -> list[Task]:
    """The round's clients that will return a model; those that drop out count for nothing."""
    sampled = sampling.participants(config, round)
    epochs = np.array([sampling.local_epochs(config, round, int(k)) for k in sampled])
    clients = sampled[epochs > 0]
    if not len(clients):
        return []
    sizes = data.sizes.numpy()

    def label_shares(of: np.ndarray) -> np.ndarray:
        shares: np.ndarray = np.stack([data.label_counts(int(k)).numpy() / sizes[k] for k in of])
        return shares

    weights = method.weights(Cohort(clients, sizes[clients], sizes, label_shares))
    if not (np.isfinite(weights).all() and weights.min() >= 0 and weights.sum() > 0):
        raise SimulationError(
            f"{type(method).__name__} gave its participants the weights {weights}; expected 0 or more, and not all 0"
        )
    weights = weights / weights.sum()
    return [Task(int(k), int(e), float(w)) for k, e, w in zip(clients, epochs[epochs > 0], weights, strict=True)]


@dataclass(frozen=True)
class Trained:
    """A client's training, checked; nothing of it has been added or written yet."""

    client: Client
    record: dict[str, Tensor] | None  # what it wrote last
    run: LocalRun
    state: dict[str, Tensor]  # what it keeps now


def train_client(place: Workplace, server: Server, task: Task, losses: list[Tensor] | None = None) -> Trained:
    """Trains one client.  Whatever goes wrong is a ClientError; `losses` has the steps until then."""
    losses = [] if losses is None else losses
    record = place.store.read(task.client)
    client = place.client(task.client, record)
    try:
        correction = place.method.correction(server, client)
        run = place.trainer.train(server, client, correction, task.epochs, losses)
    except SimulationError:
        raise
    except Exception as error:
        raise ClientError(client.id, server.round, len(losses), f"{type(error).__name__}: {error}") from error
    return conclude(place, server, client, record, run)


def conclude(
    place: Workplace, server: Server, client: Client, record: dict[str, Tensor] | None, run: LocalRun
) -> Trained:
    """What the client keeps, and whether its training can be used."""
    steps = len(run.losses)
    bad = (~run.losses.isfinite()).nonzero()
    if len(bad):
        raise ClientError(client.id, server.round, int(bad[0]), f"the loss is {run.losses[bad[0]].item()}")
    try:
        state = place.method.finish(server, client, run.end, steps)
    except Exception as error:
        raise ClientError(client.id, server.round, steps - 1, f"{type(error).__name__}: {error}") from error
    for name, vector in {"model": run.end, **state}.items():
        if not fixed_point.in_range(vector):
            reason = f"diverged: the largest entry of its {name} is {vector.abs().max().item()}"
            raise ClientError(client.id, server.round, steps - 1, reason)
    return Trained(client, record, run, state)


def run_client(place: Workplace, server: Server, task: Task, sums: Sums) -> None:
    """Trains one client, adds it to the sums and writes its record; a failed client leaves both as they were."""
    with dropping(place, task, sums):
        add_client(place, server, task, train_client(place, server, task), sums)


@contextmanager
def dropping(place: Workplace, task: Task, sums: Sums) -> Iterator[None]:
    """A client that fails here is noted and left out, if the configuration says so."""
    try:
        yield
    except ClientError as error:
        if place.config.on_client_error == "abort":
            raise
        sums.reports.append(Report(task.client, 0, 0, float("nan"), error=str(error)))


def add_client(place: Workplace, server: Server, task: Task, trained: Trained, sums: Sums) -> None:
    run, record, k = trained.run, trained.record, task.client
    fixed_point.accumulate(sums.mean, run.end, task.weight)
    for name, before in trained.client.state.items():
        fixed_point.accumulate(sums.change[name], trained.state[name] - before, 1 / place.data.num_clients)
    if sums.all_change is not None:
        share = place.share(k)
        fixed_point.accumulate(sums.all_change, run.end - place.initial, share)
        if record:  # the very integers that were added then: rounding is symmetric
            fixed_point.accumulate(sums.all_change, record["upload"].to(run.end.device) - place.initial, -share)
    place.store.write(k, {**trained.state, "upload": run.end})
    distance = float(torch.linalg.vector_norm(run.end - server.model))
    sums.reports.append(Report(k, len(run.losses), run.samples, float(run.losses.double().mean()), distance))

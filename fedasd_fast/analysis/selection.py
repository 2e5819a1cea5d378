"""Selects what an analysis looks at: clients, training samples, the averaged model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..common.randomness import Stream, generator
from ..data.federated import FederatedData
from ..data.host_to_device import send
from ..data.transform import to_float
from ..simulation.client.flat_model import channels_last
from ..simulation.errors import SimulationError
from .loaded_run import LoadedRun


def select_clients(data: FederatedData, clients: int | Sequence[int], seed: int) -> list[int]:
    """A number: this many clients, drawn with the seed, or all if there are fewer.  Ids: these, in their order."""
    if isinstance(clients, int):
        if clients < 1:
            raise SimulationError(f"clients = {clients}; expected at least 1, or a list of client ids")
        drawn = np.random.default_rng(seed).choice(data.num_clients, min(clients, data.num_clients), replace=False)
        return sorted(int(k) for k in drawn)
    ids = list(clients)
    wrong = [k for k in ids if not 0 <= k < data.num_clients]
    if not ids or wrong or len(set(ids)) < len(ids):
        raise SimulationError(
            f"clients = {ids}; expected different client ids, at least one, of 0 .. {data.num_clients - 1}"
        )
    return ids


def training_samples(run: LoadedRun, number: int | None, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets: `number` samples of all clients, drawn with this seed; None: all samples.

    They are not augmented, and normalised as in training.
    """
    data, like = run.context.experiment.data, run.context.initial
    sizes = data.sizes.numpy()
    total = int(sizes.sum())
    if number is not None and number <= 0:
        raise SimulationError(f"samples = {number}; expected a positive number, or `all`")
    if number is None or number >= total:
        rows = np.arange(total)
    else:
        rows = np.sort(generator(seed, Stream.ANALYSIS).choice(total, number, replace=False))
    ends = np.cumsum(sizes)
    owners = np.searchsorted(ends, rows, side="right")
    inputs, targets = [], []
    for k in np.unique(owners):
        local = torch.from_numpy(rows[owners == k] - (ends[k] - sizes[k]))
        samples = data.client(int(k))
        local = local.to(samples.targets.device)
        inputs.append(samples.inputs[local])
        targets.append(samples.targets[local])
    x = to_float(send(torch.cat(inputs), like.device), data.mean, data.std, like.dtype)
    return channels_last(x), send(torch.cat(targets), like.device)


def select_model(run: LoadedRun, name: str | None) -> str:
    """The averaged model to analyse; None: that of all clients if the run tracks it, else of the last participants."""
    tracked = [model for model in ("all", "sel", "cloud") if model != "all" or run.state.all_change is not None]
    if name is None:
        return tracked[0]
    if name not in tracked:
        why = "the run did not track it (eval_models lacks `all`)" if name == "all" else "there is no such model"
        raise SimulationError(f"model = {name}: {why}; expected one of {', '.join(tracked)}")
    return name

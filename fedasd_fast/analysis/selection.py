"""Training samples of all clients together, as an analysis sees them: not augmented, normalised as in training."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..common.randomness import Stream, generator
from ..data.host_to_device import send
from ..data.transform import to_float
from ..simulation.client.flat_model import channels_last
from ..simulation.errors import SimulationError
from .loaded_run import OpenedRun


def training_samples(run: OpenedRun, number: int | None, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets: `number` samples, drawn with this seed, from those of all clients; None: all of them."""
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


def model_name(run: OpenedRun, name: str | None) -> str:
    """The averaged model to look at; None: over all clients if the run has that, else over the last participants."""
    tracked = [model for model in ("all", "sel", "cloud") if model != "all" or run.state.all_change is not None]
    if name is None:
        return tracked[0]
    if name not in tracked:
        why = "the run did not track it (eval_models lacks `all`)" if name == "all" else "there is no such model"
        raise SimulationError(f"model = {name}: {why}; expected one of {', '.join(tracked)}")
    return name

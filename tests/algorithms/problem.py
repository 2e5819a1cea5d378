"""A small federated problem in float64, and helpers that run rounds on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedasd_fast.config import Config, from_dict
from fedasd_fast.data.federated import FederatedData, Samples
from fedasd_fast.simulation import state
from fedasd_fast.simulation.context import Context, build_context
from fedasd_fast.simulation.executors import local_executor
from fedasd_fast.simulation.inputs import Inputs
from fedasd_fast.simulation.round import run_round
from fedasd_fast.simulation.state import State

FEATURES, CLASSES = 3, 4
SIZES = (7, 4, 9, 5, 6)  # unequal, and none but one a multiple of the batch size 3


class Clients(FederatedData):
    """Samples given client by client."""

    def __init__(self, samples: Sequence[tuple[Tensor, Tensor]], num_classes: int = CLASSES) -> None:
        self.name, self.num_classes = "clients", num_classes
        self._samples = [Samples(x, y) for x, y in samples]
        self.sizes = torch.tensor([len(s) for s in self._samples])
        self.test = Samples(*(torch.cat([pair[i] for pair in samples]) for i in (0, 1)))
        self.input_shape = tuple(self.test.inputs.shape[1:])

    def client(self, k: int) -> Samples:
        return self._samples[k]

    @property
    def nbytes(self) -> int:
        return 2 * self.test.nbytes


def skewed(sizes: Sequence[int] = SIZES, shape: tuple[int, ...] = (FEATURES,), seed: int = 0) -> Clients:
    """Clients with different label distributions, and inputs that are informative but not separable."""
    rng = np.random.default_rng(seed)
    centres = 2 * rng.normal(size=(CLASSES, *shape))
    samples = []
    for n in sizes:
        y = rng.choice(CLASSES, n, p=rng.dirichlet(np.full(CLASSES, 0.8)))
        samples.append((torch.from_numpy(centres[y] + rng.normal(size=(n, *shape))), torch.from_numpy(y)))
    return Clients(samples)


def linear(features: int = FEATURES, classes: int = CLASSES, seed: int = 1) -> nn.Module:
    """Flatten and one layer; its parameters are in the order weight [C, D], bias [C]."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(features, classes)).double()
    random = torch.Generator().manual_seed(seed)
    for p in module.parameters():
        p.data = torch.randn(p.shape, generator=random, dtype=torch.float64) * 0.5
    return module


def settings(**changes: Any) -> Config:
    base = from_dict(
        dict(
            clients=len(SIZES), participation=0.6, sampling="fixed", rounds=3, local_epochs=2, batch_size=3,
            optimizer=dict(lr=0.2, weight_decay=0.05, lr_decay_per_round=0.9, clip_norm=None), asd=dict(weight=3.0),
            dtype="float64", seed=5,
        )
    )  # fmt: skip
    return base.replace(**changes)


def prepare(config: Config, data: FederatedData | None = None, module: nn.Module | None = None) -> Context:
    return build_context(config, Inputs(data or skewed(), module or linear()))


def advance(context: Context, rounds: int | None = None) -> tuple[State, list[dict[str, Any]]]:
    """The state after the given number of rounds (all of the configuration), and their metrics."""
    now, rows = state.first(context.experiment.config, context.experiment.method, context.initial), []
    executor = local_executor(context)
    for _ in range(context.experiment.config.rounds if rounds is None else rounds):
        now, row = run_round(context.experiment, executor, now)
        context.records.mark()
        rows.append(row)
    return now, rows


def outcome(config: Config, data: FederatedData | None = None, module: nn.Module | None = None) -> State:
    return advance(prepare(config, data, module))[0]


def same(a: State, b: State) -> bool:
    """Bit for bit."""
    return all(torch.equal(a.model(name), b.model(name)) for name in ("all", "sel", "cloud"))

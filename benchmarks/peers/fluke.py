"""fluke with its own client, server and centralised algorithm.  It trains one client after another.

Its clients keep model and optimiser from round to round, its server deep-copies the model for every participant.
"""

from __future__ import annotations

import contextlib
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from fluke import DDict, FlukeENV
from fluke.algorithms import CentralizedFL
from fluke.client import Client
from fluke.config import OptimizerConfigurator
from fluke.data import FastDataLoader
from fluke.server import Server
from torch import Tensor, nn

from .spec import Spec
from .stdio_protocol import UNLIMITED_ROUNDS, Finished, RoundGate
from .workload import CLIP_NORM, LR, WEIGHT_DECAY, Data, build_model


class CountingLoss(nn.Module):
    steps = 0

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        CountingLoss.steps += 1
        return nn.functional.cross_entropy(logits, targets)


class AtTheGate:
    """Observer of the algorithm: fluke calls the method that has the name of an event."""

    def __init__(self, gate: RoundGate, data: Data, server: Server) -> None:
        self._gate, self._data, self._server = gate, data, server
        self._updates = 0

    def selected_clients(self, round: int, clients: Any) -> None:
        self._updates, CountingLoss.steps = len(clients), 0

    def end_round(self, round: int) -> None:
        self._gate.round_done(self._updates, CountingLoss.steps, lambda: self._data.test_loss(self._server.model))

    def __getattr__(self, event: str) -> Any:
        if event.startswith("_"):
            raise AttributeError(event)
        return lambda **_: None  # events that say nothing about rounds


def main() -> None:
    spec = Spec.from_argv()
    workload, data = spec.workload, spec.data()
    torch.set_num_threads(spec.setting["threads"])
    gate = RoundGate(**{"fluke-fl": version("fluke-fl"), "torch": torch.__version__, "numpy": np.__version__})
    environment = FlukeENV()
    environment.set_seed(0)
    environment.set_device("cpu")
    environment.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    optimizer = OptimizerConfigurator(DDict(name="SGD", lr=LR, weight_decay=WEIGHT_DECAY))
    clients = [
        Client(
            index=k,
            train_set=FastDataLoader(x, y, num_labels=workload.classes, batch_size=workload.batch, shuffle=True),
            test_set=None,
            optimizer_cfg=optimizer,
            loss_fn=CountingLoss(),
            local_epochs=workload.epochs,
            clipping=CLIP_NORM,
            persistency=True,
        )
        for k, (x, y) in enumerate(zip(data.inputs, data.targets, strict=True))
    ]
    server = Server(build_model(workload), None, clients, weighted=True)
    algorithm = CentralizedFL(workload.clients, None, {}, clients=clients, server=server)
    algorithm.attach(AtTheGate(gate, data, server))
    algorithm.run(UNLIMITED_ROUNDS, workload.cohort / workload.clients, finalize=False)


if __name__ == "__main__":
    with contextlib.suppress(Finished):
        main()

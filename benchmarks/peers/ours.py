"""This simulator, through its public function."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import torch

import fedasd_fast as fa
from fedasd_fast.callbacks import Callback
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import Config, from_dict
from fedasd_fast.data.federated import Dataset, PartitionedData, Samples

from .spec import Spec
from .stdio_protocol import UNLIMITED_ROUNDS, Finished, RoundGate
from .workload import ASD_WEIGHT, CLIP_NORM, LR, TEMPERATURE, WEIGHT_DECAY, Data, Workload, build_model


def config_of(workload: Workload, rounds: int = UNLIMITED_ROUNDS, **setting: Any) -> Config:
    # One evaluation a round, of one model: the clock leaves it out.
    values = dict(
        method="fedavg+asd" if workload.asd else "fedavg", asd={"weight": ASD_WEIGHT, "temperature": TEMPERATURE},
        clients=workload.clients, participation=workload.cohort / workload.clients, sampling="fixed", rounds=rounds,
        local_epochs=workload.epochs, batch_size=workload.batch, eval_models=["cloud"], eval_every=1,
        optimizer=dict(lr=LR, lr_decay_per_round=1.0, weight_decay=WEIGHT_DECAY, clip_norm=CLIP_NORM),
    )  # fmt: skip
    return from_dict(values | setting)


def data_of(workload: Workload, data: Data) -> PartitionedData:
    train = Samples(data.inputs.flatten(0, 1), data.targets.flatten())
    parts = np.arange(len(train)).reshape(workload.clients, workload.samples)
    dataset = Dataset("peers", train, Samples(data.test_inputs, data.test_targets), workload.classes)
    return PartitionedData(dataset, list(parts))


class ReportsRounds(Callback):
    def __init__(self, gate: RoundGate) -> None:
        self._gate = gate

    def on_round(self, metrics: dict[str, Any]) -> None:
        self._gate.round_done(
            metrics["client_updates"], metrics["steps"], lambda: metrics["test_loss_cloud"], metrics["seconds_eval"]
        )


def main() -> None:
    spec = Spec.from_argv()
    gate = RoundGate(fedasd_fast=fa.__version__, torch=torch.__version__)
    try:
        config = config_of(spec.workload, **spec.setting)
    except ConfigError as error:
        return gate.say({"unavailable": str(error)})
    model, data = build_model(spec.workload), data_of(spec.workload, spec.data())
    fa.simulate(config, data=data, model=model, callbacks=[ReportsRounds(gate)])


if __name__ == "__main__":
    with contextlib.suppress(Finished):
        main()

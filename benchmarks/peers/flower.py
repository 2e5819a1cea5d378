"""Flower with its simulation engine on Ray: a ClientApp, a ServerApp with FedAvg, run_simulation.

Its actors are long-lived processes: they keep the model and the mapped data from one message to the next.
"""

from __future__ import annotations

import contextlib
import functools
import os
from importlib.metadata import version
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

from .plain import random_orders, train
from .spec import Spec
from .stdio_protocol import UNLIMITED_ROUNDS, Finished, RoundGate
from .workload import Data, build_model

SPEC_VARIABLE = "PEERS_SPEC"  # the actors' command line is Ray's: they find the specification in the environment
client_app = ClientApp()


@functools.cache
def workplace() -> tuple[Spec, Data, nn.Module]:
    spec = Spec.from_argument(os.environ[SPEC_VARIABLE])
    return spec, spec.data(), build_model(spec.workload)


@client_app.train()
def train_client(message: Message, context: Context) -> Message:
    spec, data, model = workplace()
    k = int(context.node_config["partition-id"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    model.train()
    steps = train(model, data.inputs[k], data.targets[k], random_orders(spec.workload), spec.workload, None)
    metrics = MetricRecord({"num-examples": len(data.targets[k]), "steps": steps})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


def server_app(spec: Spec, gate: RoundGate) -> ServerApp:
    workload, data, model = spec.workload, spec.data(), build_model(spec.workload)
    app, done = ServerApp(), [0, 0]

    def count(replies: list[RecordDict], _: str) -> MetricRecord:
        done[:] = [len(replies), sum(int(reply["metrics"]["steps"]) for reply in replies)]
        return MetricRecord({"steps": done[1]})

    def after_round(number: int, arrays: ArrayRecord) -> None:
        def loss() -> float:
            model.load_state_dict(arrays.to_torch_state_dict())
            return data.test_loss(model)

        if number > 0:
            gate.round_done(*done, loss)

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(
            fraction_train=workload.cohort / workload.clients,
            fraction_evaluate=0.0,
            min_train_nodes=workload.cohort,
            train_metrics_aggr_fn=count,
        )
        arrays = ArrayRecord(model.state_dict())
        strategy.start(grid, arrays, num_rounds=UNLIMITED_ROUNDS, evaluate_fn=after_round)

    return app


def main() -> None:
    spec = Spec.from_argv()
    os.environ |= {SPEC_VARIABLE: spec.to_argument(), "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ |= {"RAY_worker_niceness": "0"}  # by default its actors give way to everything else on the machine
    cpus = spec.setting["num_cpus"]
    backend: dict[str, Any] = {
        "init_args": {"address": "local", "num_cpus": os.cpu_count(), "_temp_dir": f"{spec.folder}/ray-{cpus}"},
        "client_resources": {"num_cpus": cpus, "num_gpus": 0.0},
    }
    gate = RoundGate(flwr=version("flwr"), ray=version("ray"), torch=torch.__version__)
    run_simulation(server_app(spec, gate), client_app, spec.workload.clients, "ray", backend)


if __name__ == "__main__":
    # By its name, so that actors import this module instead of getting a new copy with each message.
    from benchmarks.peers import flower

    with contextlib.suppress(Finished):
        flower.main()

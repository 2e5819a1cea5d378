"""BlazeFL with trainers of our own: one by one, in its pool of processes (shared memory) and in its pool of threads.

Its FedAvg contribution neither clips nor decays and reads through a DataLoader; its documented way to do something else
is a trainer of one's own, which here trains on tensors as the plain loop does.  Its server samples and averages.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from blazefl.contrib.fedavg import FedAvgBaseServerHandler, FedAvgDownlinkPackage
from blazefl.core import (
    IPCMode,
    ProcessPoolClientTrainer,
    SHMHandle,
    ThreadPoolClientTrainer,
    deserialize_model,
    serialize_model,
)
from torch import Tensor, nn

from .plain import random_orders, train
from .spec import Spec
from .stdio_protocol import UNLIMITED_ROUNDS, Finished, RoundGate
from .workload import Data, build_model


@dataclass
class Uplink:
    cid: int
    model_parameters: Tensor | SHMHandle
    data_size: int
    steps: int


@functools.cache
def model_and_data(argument: str) -> tuple[Spec, nn.Module, Data]:
    """Inherited by the workers of a pool, which BlazeFL forks in every round."""
    spec = Spec.from_argument(argument)
    return spec, build_model(spec.workload), spec.data()


def train_client(model: nn.Module, spec: Spec, data: Data, start: Tensor, cid: int) -> Uplink:
    deserialize_model(model, start)
    model.train()
    steps = train(model, data.inputs[cid], data.targets[cid], random_orders(spec.workload), spec.workload, None)
    return Uplink(cid, serialize_model(model), len(data.targets[cid]), steps)


class Serial:
    def __init__(self, argument: str, workers: int) -> None:
        self._argument, self._cache = argument, list[Uplink]()

    def local_process(self, payload: FedAvgDownlinkPackage, cid_list: list[int]) -> None:
        spec, model, data = model_and_data(self._argument)
        self._cache = [train_client(model, spec, data, payload.model_parameters, cid) for cid in cid_list]

    def uplink_package(self) -> list[Uplink]:
        return self._cache


class Threads(ThreadPoolClientTrainer):  # type: ignore[misc]
    def __init__(self, argument: str, workers: int) -> None:
        self._argument, self._own = argument, threading.local()
        self.num_parallels, self.device, self.device_count = workers, "cpu", 0
        self.cache: list[Uplink] = []
        self.stop_event = threading.Event()

    def worker(self, cid: int, device: str, payload: FedAvgDownlinkPackage, stop_event: threading.Event) -> Uplink:
        spec, _, data = model_and_data(self._argument)
        if not hasattr(self._own, "model"):  # a thread of its pool keeps its model for the round
            self._own.model = build_model(spec.workload)
        return train_client(self._own.model, spec, data, payload.model_parameters, cid)

    def uplink_package(self) -> list[Uplink]:
        packages, self.cache = self.cache, []
        return packages


@dataclass
class ClientConfig:
    argument: str
    cid: int


class Processes(ProcessPoolClientTrainer):  # type: ignore[misc]
    def __init__(self, argument: str, workers: int) -> None:
        _, model, _ = model_and_data(argument)
        self._argument, self._vector = argument, serialize_model(model)
        self.num_parallels, self.device, self.device_count = workers, "cpu", 0
        self.ipc_mode = IPCMode.SHARED_MEMORY
        self.cache: list[Uplink] = []
        self._manager = torch.multiprocessing.Manager()
        self.stop_event = self._manager.Event()

    def get_client_config(self, cid: int) -> ClientConfig:
        return ClientConfig(self._argument, cid)

    def prepare_uplink_package_buffer(self) -> Uplink:
        return Uplink(-1, self._vector.clone(), 0, 0)

    @staticmethod
    def worker(
        config: ClientConfig,
        payload: FedAvgDownlinkPackage,
        device: str,
        stop_event: Any,
        *,
        shm_buffer: Uplink | None = None,
    ) -> Uplink:
        torch.set_num_threads(1)
        spec, model, data = model_and_data(config.argument)
        package = train_client(model, spec, data, payload.model_parameters, config.cid)
        assert shm_buffer
        assert isinstance(shm_buffer.model_parameters, Tensor)
        shm_buffer.model_parameters.copy_(package.model_parameters)
        package.model_parameters = SHMHandle()
        return package

    def uplink_package(self) -> list[Uplink]:
        packages, self.cache = self.cache, []
        return packages


TRAINERS = {"serial": Serial, "threads": Threads, "processes": Processes}


class ModelOfWorkload:
    """Its model selector."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec

    def select_model(self, model_name: str) -> nn.Module:
        return build_model(self._spec.workload)


def main() -> None:
    spec = Spec.from_argv()
    workload, data = spec.workload, spec.data()
    torch.set_num_threads(spec.setting["threads"])
    gate = RoundGate(blazefl=version("blazefl"), torch=torch.__version__, numpy=np.__version__)
    server = FedAvgBaseServerHandler(
        model_selector=ModelOfWorkload(spec), model_name="", dataset=None, global_round=UNLIMITED_ROUNDS,
        num_clients=workload.clients, sample_ratio=workload.cohort / workload.clients, device="cpu",
        batch_size=workload.batch, seed=0,
    )  # fmt: skip
    trainer = TRAINERS[spec.setting["pool"]](spec.to_argument(), spec.setting.get("workers", 1))
    while not server.if_stop():
        trainer.local_process(server.downlink_package(), server.sample_clients())
        packages = trainer.uplink_package()
        for package in packages:
            server.load(package)
        gate.round_done(len(packages), sum(p.steps for p in packages), lambda: data.test_loss(server.model))


if __name__ == "__main__":
    # By its name, so that workers unpickle the classes of this module and not of __main__.
    from benchmarks.peers import blazefl

    with contextlib.suppress(Finished):
        blazefl.main()

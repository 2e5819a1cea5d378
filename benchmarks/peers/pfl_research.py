"""pfl-research with its PyTorch model.  It does not shuffle a user's samples, so it is not asked to.

With several workers every process trains a part of the cohort and statistics are all-reduced, as its documentation
says for several GPUs.  The first worker talks to the harness, and releases the others through a barrier.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import socket
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .spec import Spec
from .stdio_protocol import UNLIMITED_ROUNDS, Finished, RoundGate
from .workload import CLIP_NORM, LR, WEIGHT_DECAY, Workload, build_model

RANK, ADDRESSES = "PFL_WORKER_RANK", "PFL_WORKER_ADDRESSES"
STEPS_VARIABLE = "PEERS_STEPS"  # a file with the number of steps that each worker has done


class Net(nn.Module):
    def __init__(self, workload: Workload, steps: Any) -> None:
        super().__init__()
        self.net = build_model(workload)
        self._steps = steps  # [1], counts calls of the loss

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        self._steps[0] += 1
        return F.cross_entropy(self.net(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        from pfl.metrics import Weighted

        # Demanded.  Only the very first round calls it, which warms up.
        with torch.no_grad():
            return {"loss": Weighted(float(F.cross_entropy(self.net(x), y, reduction="sum")), len(y))}


def start_workers(count: int) -> None:
    """Starts the other workers; this process becomes the first."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    os.environ[ADDRESSES] = ",".join([f"localhost:{port}"] * count)
    for rank in range(1, count):
        command = [sys.executable, "-m", "benchmarks.peers.pfl_research", *sys.argv[1:]]
        subprocess.Popen(command, env={**os.environ, RANK: str(rank)}, stdin=subprocess.DEVNULL)
    os.environ[RANK] = "0"


def run(spec: Spec, rank: int, workers: int, gate: RoundGate | None) -> None:
    from pfl.aggregate.base import get_num_devices_weight_name
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.common_types import Population
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    workload, data = spec.workload, spec.data()
    np.random.seed(0)  # noqa: NPY002  its samplers draw from the global generator, alike in all workers
    users = [Dataset([x, y], user_id=str(k)) for k, (x, y) in enumerate(zip(data.inputs, data.targets, strict=True))]
    users_data = FederatedDataset(users.__getitem__, get_user_sampler("random", list(range(workload.clients))))

    counts = np.asarray(np.memmap(os.environ[STEPS_VARIABLE], np.int64, "r+"))
    net = Net(workload, counts[rank : rank + 1])
    model = PyTorchModel(
        net,
        local_optimizer_create=functools.partial(torch.optim.SGD, weight_decay=WEIGHT_DECAY),
        central_optimizer=torch.optim.SGD(net.parameters(), lr=1.0),
    )

    class AtTheGate(TrainingProcessCallback):  # type: ignore[misc]
        steps = 0

        def after_central_iteration(self, metrics: Metrics, *_: Any, **__: Any) -> tuple[bool, Metrics]:
            if gate:
                before, self.steps = self.steps, int(counts.sum())
                users = int(metrics[get_num_devices_weight_name(Population.TRAIN)])
                gate.round_done(users, self.steps - before, lambda: data.test_loss(net.net))
            if workers > 1:
                torch.distributed.barrier()
            return False, Metrics()

    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=UNLIMITED_ROUNDS,
            evaluation_frequency=UNLIMITED_ROUNDS,
            train_cohort_size=workload.cohort,
            val_cohort_size=None,
        ),
        SimulatedBackend(users_data, users_data, postprocessors=[WeightByDatapoints()]),
        model,
        NNTrainHyperParams(
            local_batch_size=workload.batch,
            local_num_epochs=workload.epochs,
            local_learning_rate=LR,
            local_max_grad_norm=CLIP_NORM,
        ),
        callbacks=[AtTheGate()],
        send_metrics_to_platform=False,
    )


def main() -> None:
    spec = Spec.from_argv()
    logging.disable(logging.WARNING)
    torch.set_num_threads(spec.setting["threads"])
    workers = spec.setting.get("workers", 1)
    rank = int(os.environ.get(RANK, 0))
    gate = RoundGate(pfl=version("pfl"), torch=torch.__version__) if rank == 0 else None
    if gate:
        os.environ[STEPS_VARIABLE] = f"{spec.folder}/pfl-{os.getpid()}"
        np.zeros(workers, np.int64).tofile(os.environ[STEPS_VARIABLE])
        if workers > 1:
            start_workers(workers)
    try:
        run(spec, rank, workers, gate)
    except RuntimeError:  # the first worker has left
        if rank == 0:
            raise


if __name__ == "__main__":
    with contextlib.suppress(Finished):
        main()

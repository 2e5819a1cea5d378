"""Local training of a whole cohort in one call of a compiled op, for networks that are chains of linear layers.

A client's parameters stay in a core's cache, or in the shared memory of a GPU's multiprocessor, for all of its steps,
and Python does nothing in between (docs/kernels.md).  The bits of a client's result depend neither on the other clients
nor on threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...algorithms import Client, Distillation, Server
from ...data.federated import FederatedData
from ...data.host_to_device import send
from ...kernels import loader
from ..cohort import ClientTask, CohortTasks
from ..errors import Interrupted
from ..experiment import Experiment
from ..system.threads import cores, threads
from .chain_layers import ChainLayers, chain_layers
from .cohort_clients import cohort_correction
from .cohort_samples import CohortSamples
from .flat_model import FlatModel
from .stacked_trainer import StackedRun
from .trainer import Trainer


class ChainTrainer:
    def __init__(self, trainer: Trainer, layers: ChainLayers) -> None:
        self._trainer, self._layers = trainer, layers.numbers()
        config = trainer.experiment.config
        # In a process of its own the op takes all cores; workers and ranks share them.
        own = config.executor in ("auto", "stacked")
        self._threads = config.threads or (cores() if own else torch.get_num_threads())
        self._scratch = trainer.model.vector.new_empty(0, len(trainer.model))

    def scratch(self, clients: int) -> Tensor:
        """[K, P] of memory for whoever wants it between runs."""
        if len(self._scratch) < clients:
            self._scratch = self._scratch.new_empty(clients, self._scratch.shape[1])
        return self._scratch[:clients]

    def train(self, server: Server, tasks: Sequence[ClientTask], clients: Sequence[Client]) -> StackedRun:
        trainer = self._trainer
        config, data = trainer.experiment.config, trainer.experiment.data
        tasks, optimizer = CohortTasks.of(tasks), config.optimizer
        samples = CohortSamples(config, data, server.round, tasks.clients, tasks.epochs, trainer.model.vector)
        steps = samples.epochs * -(-samples.sizes // config.batch_size)
        correction, decays = cohort_correction(trainer.experiment.method, server, clients, optimizer.weight_decay)
        linear = correction.linear
        if linear is not None and linear.dim() == 1:
            linear = linear.repeat(len(tasks), 1)
        device = server.model.device
        with _asking(trainer.stop), threads(self._threads):
            ends, losses, _, distances = loader.module.train_clients(
                server.model.contiguous(),
                samples.inputs.flatten(1),
                samples.targets,
                send(torch.from_numpy(samples.sizes), device),
                send(torch.from_numpy(samples.epochs), device),
                samples.orders,
                decays,
                linear,
                self._layers,
                largest_batch(config.batch_size, data),
                int(steps.max()),
                server.lr,
                correction.quadratic,
                optimizer.clip_norm,
                optimizer.momentum,
                correction.rho,
                correction.rho_epsilon,
                *_options(trainer.distillation),
            )
        active = send(torch.from_numpy(np.arange(steps.max()) < steps[:, None]), device)
        return StackedRun(ends, losses, active, samples.epochs * samples.sizes, distances)


def layers_of_chain(experiment: Experiment, model: FlatModel) -> ChainLayers | str:
    """The network's layers if the op can train it as the configuration wants, or why it cannot."""
    config, device = experiment.config, model.vector.device
    if not config.client_op:
        return "client_op = false"
    if device.type not in loader.devices:
        return loader.missing(device.type)
    if experiment.hooks - {"contribution"}:
        return f"{type(experiment.method).__name__} has {', '.join(sorted(experiment.hooks))}"
    if config.optimizer.name != "sgd":
        return f"optimizer.name = {config.optimizer.name}, and its steps are those of SGD"
    if config.precision != "float32":
        return f"precision = {config.precision}, and it computes in {config.dtype}"
    if config.augment == "epoch":
        return "augment = epoch, and it takes the same inputs in all epochs"
    if config.teacher == "recompute" and config.distillation is not None:
        return "teacher = recompute, and it keeps the teacher's outputs"
    chain = chain_layers(model.module, model.offsets(), experiment.data.input_shape)
    if device.type != "cuda" or isinstance(chain, str):
        return chain
    batch, double = largest_batch(config.batch_size, experiment.data), model.vector.dtype == torch.float64
    return loader.module.why_not_trained_on_gpu(chain.numbers(), batch, double, shared_memory(device)) or chain


def largest_batch(batch_size: int, data: FederatedData) -> int:
    """Memory on a GPU is laid out for it: no client fills a larger one."""
    return min(batch_size, int(data.sizes.max()))


def shared_memory(device: torch.device) -> int:
    """Bytes that a block of the GPU can have."""
    return int(torch.cuda.get_device_properties(device).shared_memory_per_block_optin)  # type: ignore[attr-defined]


@contextmanager
def _asking(stop: Callable[[], bool]) -> Iterator[None]:
    """Within it the op asks now and then whether to stop; before it, once."""
    if stop():
        raise Interrupted("stopped")
    stopped = False

    def ask() -> bool:
        nonlocal stopped
        stopped = stop()
        return stopped

    loader.module.set_training_stop(ask)
    try:
        yield
    except RuntimeError as error:
        if stopped:
            raise Interrupted("stopped") from error
        raise
    finally:
        loader.module.set_training_stop(None)


def _options(term: Distillation | None) -> tuple[Any, ...]:
    """Of the loss, from asd_weight on; 0 leaves the teacher out."""
    if term is None:
        return 0.0, 1.0, 1.0, 1.0, 1.0, "uniform", "kl", False
    powers = term.entropy_power, term.prior_power
    kind = term.weighting, term.divergence, term.not_true
    return term.weight, term.temperature, term.entropy_temperature, *powers, *kind

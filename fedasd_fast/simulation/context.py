"""What a run works with in one process, built from its configuration.

Its parts say who needs what: `experiment` (configuration, data, method), `trainer` (the network and its local
training), `records` (what clients keep), `sum_layout` (what a round adds up), `parallelism`.  Functions take the parts
that they touch.  There is one configuration, in the experiment.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .. import models
from ..algorithms.hooks import why_not_stacked
from ..callbacks import Callback
from ..common.randomness import Stream, torch_seeded
from ..common.schema import ConfigError
from ..config import Config
from ..data.device_data import on_device
from ..data.federated import FederatedData
from ..data.load import federate
from ..models.layer_order import pool_before_relu
from .aggregation.sums import SumLayout
from .client.chain_layers import ChainLayers
from .client.chain_trainer import layers_of_chain
from .client.flat_model import FlatModel
from .client.flops import step_flops
from .client.stacked_model import clients_that_fit, why_not_stackable
from .client.trainer import Trainer
from .distributed.sharding import Shard
from .experiment import Experiment
from .inputs import Inputs
from .storage.client_store import ClientRecords, ClientStore
from .system.allocator import keep_freed_memory
from .system.threads import choose_threads, cores

_ONE_THREAD_EACH = ("processes", "torchrun")  # several of them share a machine: one thread each, unless told


@dataclass(frozen=True)
class Parallelism:
    """How local training is laid out in a process.  The last bits of results depend on both numbers."""

    threads: int
    clients_at_once: int


@dataclass(frozen=True)
class Context:
    experiment: Experiment
    trainer: Trainer
    records: ClientRecords
    shard: Shard  # which records are kept here
    initial: Tensor  # [N]
    parallelism: Parallelism
    step_flops: int  # of a local step
    chain: ChainLayers | None  # the network as the whole-client op takes it, which then trains clients at once
    no_chain: str  # why it does not
    inputs: Inputs
    watchers: Sequence[Callback] = ()  # with on_client

    @property
    def training(self) -> str:
        """How clients are trained, in words."""
        at_once = self.parallelism.clients_at_once
        if at_once == 1:
            return "one client at a time"
        if self.chain:
            return f"whole-client op, up to {at_once} clients a call"
        how = f"stacked, {at_once} clients at a time"
        return f"{how} (no whole-client op: {self.no_chain})" if self.initial.is_cuda else how

    @property
    def sum_layout(self) -> SumLayout:
        experiment, initial = self.experiment, self.initial
        names = (*experiment.method.client_state, *experiment.method.sent)
        return SumLayout(names, experiment.tracks_all, len(initial), initial.device)

    @property
    def workers(self) -> int:
        """How many processes on this machine train at once."""
        config = self.experiment.config
        if config.executor == "torchrun":
            return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        if config.executor == "processes":
            return worker_count(config, self.initial.device, self.parallelism.threads)
        return 1


def named_code(
    config: Config, given: Mapping[str, Any] | None = None, model: nn.Module | None = None
) -> dict[str, str]:
    """What the configuration of a run directory would import: not what the caller gave, in settings or as a model."""
    named = config.named_code(given)
    return {setting: path for setting, path in named.items() if setting != "model" or model is None}


def worker_count(config: Config, device: torch.device, threads: int) -> int:
    """Of `executor = processes`."""
    if config.workers:
        return config.workers
    if device.type == "cuda":
        return torch.cuda.device_count() if config.device == "cuda" else 1
    return max(1, cores() // threads)


def load_data(config: Config, inputs: Inputs) -> FederatedData:
    """The caller's data, or what the configuration names, on the device."""
    data = inputs.data or federate(config)
    if config.clients not in (0, data.num_clients):
        raise ConfigError(
            f"clients = {config.clients}, but the data has {data.num_clients}; set clients to that, or to 0: as many "
            "as the data have"
        )
    if config.augment != "none" and not data.is_image:
        raise ConfigError(f"augment = {config.augment}, but {data.name} has no images; use augment = none")
    return on_device(data, _device(config))


def build_context(
    config: Config,
    inputs: Inputs | None = None,
    *,
    data: FederatedData | None = None,
    shard: Shard | None = None,
    stop: Callable[[], bool] = lambda: False,
    records: ClientRecords | None = None,
    parallelism: Parallelism | None = None,
    watchers: Sequence[Callback] = (),
) -> Context:
    """Without `data`, what load_data gives; without `records`, a store in the shard's directory, or in memory if it has
    none; without `parallelism`, as the configuration says."""
    inputs, shard = inputs or Inputs(), shard or Shard()
    data = data or load_data(config, inputs)
    if not config.clients:
        config = config.replace(clients=data.num_clients)
    device = _device(config)
    model = _build_model(config, data, inputs.model)
    keep_freed_memory()
    half = None if config.precision == "float32" else getattr(torch, config.precision)
    flat = FlatModel(model, getattr(torch, config.dtype), str(device), half, config.norm_statistics)
    with torch_seeded(config.seed, Stream.INIT):
        flops = step_flops(flat, data, config.batch_size)
    experiment = Experiment(config, data, config.create_method(), flat.layout)
    if data.positions is not None:
        _refuse_for_sequences(experiment)
    found = layers_of_chain(experiment, flat)
    chain = None if isinstance(found, str) else found
    chosen = choose_parallelism(config, flat, data, flops, chain is not None)
    if records is None:
        names = (*experiment.method.client_state, *(["upload"] if experiment.keeps_uploads else []))
        records = ClientStore(names, len(flat.whole), flat.vector.dtype, shard.directory)
    return Context(
        experiment=experiment,
        trainer=Trainer(experiment, flat, stop),
        records=records,
        shard=shard,
        initial=flat.whole.clone(),
        parallelism=parallelism or chosen,
        step_flops=flops,
        chain=chain,
        no_chain="" if chain else str(found),
        inputs=inputs,
        watchers=watchers,
    )


def _refuse_for_sequences(experiment: Experiment) -> None:
    """What needs one label for each sample."""
    config, what = experiment.config, f"{experiment.data.name} has sequences with a target at each position"
    if config.cuda_graph:
        raise ConfigError(f"cuda_graph = true, but {what}, whose steps are not recorded; set cuda_graph = false")
    if "local_loss" in experiment.hooks:
        name = config.base_method
        raise ConfigError(f"method = {name} has a local_loss, but {what}; use a method without one")


def choose_parallelism(config: Config, model: FlatModel, data: FederatedData, flops: int, chain: bool) -> Parallelism:
    """`chain`: clients at once are trained by the whole-client op."""
    threads = choose_threads(config.threads or (1 if config.executor in _ONE_THREAD_EACH else 0), flops)
    if config.executor == "serial" and config.clients_at_once > 1:
        raise ConfigError(
            f"clients_at_once = {config.clients_at_once}, but executor = serial trains one at a time; use executor = "
            "stacked"
        )
    at_once = config.clients_at_once or (clients_that_fit(model, data, chain) if config.executor == "stacked" else 1)
    if at_once > 1 and (reason := why_not_stackable(model.module) or why_not_stacked(config.create_method())):
        raise ConfigError(f"clients cannot be trained at once: {reason}; use executor = serial, or clients_at_once = 1")
    return Parallelism(threads, at_once)


def _build_model(config: Config, data: FederatedData, given: nn.Module | None) -> nn.Module:
    if given is not None:
        model = copy.deepcopy(given)  # training changes it; the caller may want to start from it again
    else:
        with torch_seeded(config.seed, Stream.INIT):
            model = models.build(
                config.model,
                config.model_args,
                num_classes=data.num_classes,
                input_shape=data.input_shape,
                norm_statistics=config.norm_statistics,
            )
    pool_before_relu(model)
    return model


def _device(config: Config) -> torch.device:
    try:
        return torch.zeros(0, device=config.device).device
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"device = {config.device!r} cannot be used: {error}") from None

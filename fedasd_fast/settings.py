"""Every setting of a run, its type and its default; without torch, so that `fedasd settings` is quick.

What the settings must satisfy, and what follows from them, is in config.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Synthetic:
    """Synthetic data: each class is a mixture of Gaussians; samples of any number of clients are made on demand."""

    shape: tuple[int, ...] = (64,)
    classes: int = 10
    samples_per_client: int = 20
    test_samples: int = 2000
    modes: int = 3  # Gaussians of each class
    separation: float = 0.55  # standard deviation of the centres
    noise: float = 0.7  # standard deviation around a centre


@dataclass(frozen=True)
class Optimizer:
    name: Literal["sgd", "adamw"] = "sgd"
    lr: float = 0.1
    lr_decay_per_round: float = 0.998
    weight_decay: float = 0.001
    momentum: float = 0.0
    clip_norm: float | None = 10.0  # of the loss gradient, before weight decay; null: no clipping
    betas: tuple[float, float] = (0.9, 0.999)  # of AdamW: decay of its two moments
    eps: float = 1e-8  # of AdamW


@dataclass(frozen=True)
class ASD:
    enabled: bool | None = None  # null: on if the name of the method ends in +asd
    weight: float = 30.0
    temperature: float = 2.0
    entropy_temperature: float = 1.0
    entropy_power: float = 1.0
    prior_power: float = 1.0
    weighting: Literal["adaptive", "uniform"] = "adaptive"
    divergence: Literal["kl", "reverse_kl", "js"] = "kl"


@dataclass(frozen=True)
class Failures:
    """Unreliable devices: fractions of the sampled clients that fail."""

    dropout: float = 0.0  # return no model
    stragglers: float = 0.0  # train fewer epochs, uniform in 1 .. local_epochs - 1


@dataclass(frozen=True)
class Devices:
    """Simulated devices: they give each round simulated seconds beside the real ones."""

    profile: str = "none"  # none | constant | uniform | lognormal | a CSV file with speed, download, upload
    speed: float = 100.0  # samples that a client trains in a second: the median
    download: float = 1e6  # bytes a second
    upload: float = 5e5
    speed_spread: float = 0.5  # lognormal: standard deviation of the logarithm; uniform: half width, 1: 0 to twice
    bandwidth_spread: float = 0.5
    deadline: float | None = None  # seconds of a round; null: until the slowest has answered


@dataclass(frozen=True)
class Availability:
    """When simulated devices are there."""

    pattern: str = "always"  # always | diurnal | a CSV file with start, end, and client or trace
    mean: float = 0.5  # of the diurnal curve: fraction of the clients that are there
    amplitude: float = 0.4
    time_zones: float = 0.0  # fraction of the period over which the clients' days begin
    period: float | None = 86400.0  # seconds; null: intervals of a file are not repeated
    wait: float = 600.0  # seconds until the server looks again if nobody is there


@dataclass(frozen=True)
class Settings:
    """What a configuration says; `Config` checks it."""

    name: str = "run"
    dataset: str = "synthetic"
    dataset_args: dict[str, Any] = field(default_factory=dict)
    synthetic: Synthetic = field(default_factory=Synthetic)
    model: str = "mlp"
    model_args: dict[str, Any] = field(default_factory=dict)
    method: str = "fedavg"
    method_args: dict[str, Any] = field(default_factory=dict)
    norm_statistics: Literal["refuse", "average", "local"] = "refuse"  # of BatchNorm; local: FedBN
    partition: str = "dirichlet_0.3"
    size_sigma: float = 0.0  # client sizes are log-normal with this sigma; 0: all equal
    clients: int = 500  # 0: as many as the data have
    participation: float = 0.1
    sampling: Literal["bernoulli", "fixed"] = "bernoulli"
    failures: Failures = field(default_factory=Failures)
    devices: Devices = field(default_factory=Devices)
    availability: Availability = field(default_factory=Availability)
    rounds: int = 20
    local_epochs: int = 5
    batch_size: int = 10
    optimizer: Optimizer = field(default_factory=Optimizer)
    asd: ASD = field(default_factory=ASD)
    augment: Literal["none", "round", "epoch"] = "none"
    teacher: Literal["cache", "cache_approximate", "recompute"] = "cache"
    eval_every: int = 1
    eval_models: tuple[Literal["all", "sel", "cloud"], ...] = ("all", "sel", "cloud")
    eval_batch_size: int = 500
    class_accuracy: bool = False  # also of each class
    client_accuracy: bool = False  # also over the clients' own label distributions
    client_test_accuracy: bool = False  # also on the clients' own test data
    target_accuracy: float | None = None  # a fraction
    stop_at_target: bool = False
    keep_best: bool = False  # the models of the best round, in the run directory
    checkpoint_every: int = 5
    on_client_error: Literal["abort", "drop"] = "abort"
    seed: int = 0
    random_streams: Literal[1, 2] = 2  # version of the random numbers; see from_saved
    dtype: Literal["float32", "float64"] = "float32"
    precision: Literal["float32", "bfloat16", "float16"] = "float32"  # of matrix products and convolutions
    device: str = "cpu"
    tf32: bool | None = None  # products of float32 numbers on a GPU with ten bits of each; null: as torch is set
    cuda_graph: bool = False  # the local step is recorded once and replayed as a CUDA graph
    executor: Literal["auto", "serial", "stacked", "processes", "torchrun"] = "auto"
    workers: int = 0  # of `processes`; 0: one for each core, or fewer if they have several threads
    clients_at_once: int = 0  # stacked in each worker; 0: one, or with `stacked` as many as are fastest
    client_op: bool = True  # clients at once: by the whole-client op, where it has the network
    threads: int = 0  # of each worker; 0: as many as a local step can use
    data_dir: str | None = None
    out: str | None = None
    inputs: dict[str, dict[str, Any]] = field(default_factory=dict)  # fingerprints of the caller's own; not to be set

"""Distribution of the adaptive weights alpha and of the teacher's entropy on the samples of some clients.

The teacher is the run's global model, and the batches are those of the first epoch of the next round; samples are not
augmented.  For a run without ASD, these are the weights that ASD would give with the run's settings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..loss.label_prior import label_proportions
from ..loss.reference import entropy, log_weights, normalised_weights
from ..simulation.client.flat_model import FlatModel, channels_last
from ..simulation.client.samples import LocalSamples
from ..simulation.system.threads import threads
from .label_groups import label_groups
from .loaded_run import LoadedRun
from .selection import select_clients

# Bins of relative weights: factors of sqrt(2) around 1, the same for every run, so that histograms can be compared.
RELATIVE_EDGES = tuple(2.0 ** (i / 2) for i in range(-20, 21))
ENTROPY_BINS = 40  # from 0 to log C


@dataclass(frozen=True)
class Histogram:
    edges: list[float]  # [bins + 1]
    counts: list[int]  # [bins]; values outside the edges are in the first and the last bin


@dataclass(frozen=True)
class ClientWeights:
    client: int
    samples: int
    labels: int  # that it has
    entropy: float  # mean over its samples, in nats
    effective: float  # effective number of samples, 1 / sum alpha^2, with alpha normalised over all its samples
    rare_samples: float  # proportion of its samples whose label it has little of, see label_groups
    rare_weight: float  # proportion of the weight on them, normalised over all its samples
    batch_sizes: list[int]
    batch_effective: list[float]  # effective number of samples of each batch


@dataclass(frozen=True)
class AdaptiveWeights:
    round: int
    applied: bool  # the run trains with them; otherwise this is what ASD would do
    clients: list[ClientWeights]
    in_batch: Histogram  # of alpha B: 1 is the uniform weight
    in_client: Histogram  # of alpha n_k
    entropy: Histogram  # in nats, at asd.entropy_temperature
    effective_share: float  # mean over batches of the effective over the actual number of samples
    rare_samples: float  # mean over clients
    rare_weight: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        use = "as used by this run" if self.applied else "as ASD would set them; this run does not use them"
        entropy = np.mean([own.entropy for own in self.clients])
        return (
            f"Adaptive weights of {len(self.clients)} clients after round {self.round}, {use}\n"
            f"  effective samples {self.effective_share:.0%} of a batch\n"
            f"  rare labels       {self.rare_samples:.0%} of a client's samples, "
            f"{self.rare_weight:.0%} of the weight\n"
            f"  teacher's entropy {entropy:.2f} nats on average, of at most {self.entropy.edges[-1]:.2f}"
        )


def weights(run: LoadedRun, *, clients: int | tuple[int, ...] = 10, seed: int = 0) -> AdaptiveWeights:
    """`clients`: their number, drawn with `seed`, or their ids."""
    config, data, model = run.context.experiment.config, run.context.experiment.data, run.context.trainer.model
    plain = config.replace(augment="none")
    server = run.context.experiment.server(run.state)
    teacher = run.context.trainer.teacher(server)  # some methods have another one than the model that they send
    found: list[ClientWeights] = []
    in_batch: list[Tensor] = []
    in_client: list[Tensor] = []
    entropies: list[Tensor] = []
    for k in select_clients(data, clients, seed):
        samples = LocalSamples(plain, data, run.state.round, k, model.vector)
        with threads(run.context.parallelism.threads):
            logits = _logits(
                model, server.model if teacher is None else teacher, samples.inputs, config.eval_batch_size
            )
        targets = samples.targets.cpu()
        prior = label_proportions(targets, data.num_classes, dtype=torch.float64)
        asd = config.asd
        log_weight = log_weights(
            logits, targets, prior, asd.entropy_temperature, asd.entropy_power, asd.prior_power
        )  # [n]
        h = entropy(logits / asd.entropy_temperature)
        alpha = _normalised(log_weight)
        batches = [_normalised(log_weight[rows]) for rows in samples.order().cpu().split(config.batch_size)]
        counts = torch.bincount(targets, minlength=data.num_classes)
        rare = label_groups(counts)["little"][targets]
        found.append(
            ClientWeights(
                client=k, samples=len(targets), labels=int((counts > 0).sum()), entropy=float(h.mean()),
                effective=effective_number(alpha), rare_samples=float(rare.double().mean()),
                rare_weight=float(alpha[rare].sum()), batch_sizes=[len(batch) for batch in batches],
                batch_effective=[effective_number(batch) for batch in batches],
            )
        )  # fmt: skip
        in_batch += [len(batch) * batch for batch in batches]
        in_client.append(len(alpha) * alpha)
        entropies.append(h)
    distillation = config.distillation
    return AdaptiveWeights(
        round=run.state.round,
        applied=distillation is not None and distillation.weighting == "adaptive",
        clients=found,
        in_batch=histogram(torch.cat(in_batch), RELATIVE_EDGES),
        in_client=histogram(torch.cat(in_client), RELATIVE_EDGES),
        entropy=histogram(torch.cat(entropies), np.linspace(0, math.log(data.num_classes), ENTROPY_BINS + 1).tolist()),
        effective_share=float(
            np.mean([e / b for own in found for e, b in zip(own.batch_effective, own.batch_sizes, strict=True)])
        ),
        rare_samples=float(np.mean([own.rare_samples for own in found])),
        rare_weight=float(np.mean([own.rare_weight for own in found])),
    )


def effective_number(alpha: Tensor) -> float:
    """1 / sum alpha^2 of weights that sum to 1: from 1 (all weight on one sample) to their number (equal weights)."""
    return float(1 / alpha.square().sum())


def histogram(values: Tensor, edges: Sequence[float]) -> Histogram:
    """Values outside the edges are counted in the first and the last bin."""
    inside = np.clip(values.numpy(), edges[0], edges[-1])
    return Histogram(list(edges), np.histogram(inside, edges)[0].tolist())


def _normalised(log_weight: Tensor) -> Tensor:
    return normalised_weights(log_weight, torch.ones_like(log_weight, dtype=torch.bool))


def _logits(model: FlatModel, vector: Tensor, inputs: Tensor, batch_size: int) -> Tensor:
    """In eval mode, float64 [n, C] on the CPU."""
    with model.holding(vector) as module, torch.inference_mode():
        module.eval()
        parts = [module(channels_last(x)).cpu() for x in inputs.split(batch_size)]
    return torch.cat(parts).double()

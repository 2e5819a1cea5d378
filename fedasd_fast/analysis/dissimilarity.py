"""Gradient dissimilarity G_d(w, lambda) of a run, and the assumptions of the paper's proposition about it.

At w_t, with w_t as the teacher, the distillation has no gradient and lambda does not matter.  So G_d is measured at
w_{t+1} with the teacher w_t: one more round is run from the last checkpoint, in memory.  Gradients are over a client's
whole training set, not augmented, in eval mode, and every client has the same weight, as in the paper's definition.  A
sample of clients looks more alike than all of them are; G_d of all is estimated too (population_estimate).

Any pull towards the teacher makes clients more alike.  So the same curve is computed for uniform weights: only the
difference between the two is due to ASD's weights.

There are two scales of lambda.  If the weights alpha are normalised over the client's samples, lambda is that of the
experiments; the proposition is about weights that are not normalised, where each client has a factor of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..algorithms import Distillation
from ..common.formatting import format_significant
from ..common.progress import ProgressFunction, no_progress
from ..common.randomness import Stream, generator
from ..common.schema import plain
from ..data.host_to_device import send
from ..data.transform import to_float
from ..loss.functional import asd_loss_and_grad
from ..loss.label_prior import label_proportions
from ..loss.teacher_cache import TeacherCache
from ..simulation.client.flat_model import FlatModel, channels_last
from ..simulation.errors import SimulationError
from ..simulation.executors import local_executor
from ..simulation.round import run_round
from ..simulation.storage.client_store import ClientStore
from ..simulation.system.threads import threads
from .assumptions import Assumptions, class_gradients, label_ratios
from .dissimilarity_ratio import DissimilarityRatio, GradientMoments, population_estimate
from .loaded_run import LoadedRun
from .selection import training_samples

DEFAULT_LAMBDAS = (0.0, 1.0, 5.0, 10.0, 20.0, 30.0)
MAX_CLIENTS = 1000  # drawn from larger populations by default


@dataclass(frozen=True)
class DissimilarityCurve:
    """G_d as a function of lambda."""

    ratio: DissimilarityRatio  # the whole curve
    values: tuple[float | None, ...]  # at the lambdas
    population: tuple[float | None, ...]  # estimates for all clients; the same values if none are left out
    limit: float | None
    lambda_c: float | None  # lower than at 0 for every larger lambda; None if there is no such value
    best: float | None  # where it is lowest; None if it falls for ever
    slope: float | None  # at the run's lambda

    @staticmethod
    def of(
        ratio: DissimilarityRatio, lambdas: Sequence[float], weight: float, drawn: int, population: int
    ) -> DissimilarityCurve:
        values = tuple(ratio(x) for x in lambdas)
        all_clients = tuple(population_estimate(ratio, x, drawn, population) for x in lambdas)
        return DissimilarityCurve(
            ratio, values, all_clients, ratio.limit, ratio.lambda_c, ratio.best, ratio.slope(weight)
        )


@dataclass(frozen=True)
class Dissimilarity:
    round: int  # t + 1, where it is measured; the teacher is the model of round t
    clients: int  # whose gradients are measured
    population: int
    seed: int
    weight: float  # the run's lambda; 0: it has no distillation, and the curve shows what ASD would do
    lambdas: tuple[float, ...]
    normalised: DissimilarityCurve
    unnormalised: DissimilarityCurve
    uniform: DissimilarityCurve | None  # with weights 1 / n_k, for comparison; None if the run uses these itself
    condition: Assumptions

    def to_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = plain(self)
        return values

    def __str__(self) -> str:
        curve = self.normalised
        of = f"{self.clients} clients" if self.clients == self.population else f"{self.clients} of {self.population}"
        own = f"lambda {self.weight:g}" if self.weight else "no distillation"
        return "\n".join(
            [
                f"Gradient dissimilarity after round {self.round} ({of}; 1: all gradients are equal; this run: {own})",
                f"  lambda: G_d      {self._pairs(curve.values)}",
                *([f"  all, estimated   {self._pairs(curve.population)}"] if self.clients < self.population else []),
                *([f"  uniform weights  {self._pairs(self.uniform.values)}"] if self.uniform else []),
                f"  large lambda     {format_significant(curve.limit)}; lowest at lambda "
                + format_significant(curve.best, missing="infinity"),
                f"  lower than at 0  {_range_text(curve.lambda_c)}; weights not normalised: "
                f"{_range_text(self.unnormalised.lambda_c)}",
                f"  at lambda {self.weight or self.lambdas[-1]:<6g} {self._conclusion()}",
                *self.condition.lines(self.unnormalised.ratio),
            ]
        )

    def _pairs(self, values: Sequence[float | None]) -> str:
        return "  ".join(f"{x:g}: {format_significant(value)}" for x, value in zip(self.lambdas, values, strict=True))

    def _conclusion(self) -> str:
        """Whether the proposition's claim holds at the run's lambda, or at the largest if the run has none."""
        at, ratio = self.weight or self.lambdas[-1], self.normalised.ratio
        value, first, slope = ratio(at), ratio(0.0), ratio.slope(at)
        if value is None or first is None or slope is None:
            return "undefined: the clients' gradients cancel out"
        lower = "lower than" if value < first else "not lower than"
        return f"{lower} at 0, and {'falling' if slope < 0 else 'not falling'} with lambda"


def dissimilarity(
    run: LoadedRun,
    *,
    clients: int = 0,
    lambdas: tuple[float, ...] = DEFAULT_LAMBDAS,
    samples: int | None = 5000,
    seed: int = 0,
    batch_size: int = 500,
    progress: ProgressFunction = no_progress,
) -> Dissimilarity:
    """clients 0: all, or MAX_CLIENTS of a larger population; `samples` are used for the gradients of classes."""
    context, config, data = run.context, run.context.experiment.config, run.context.experiment.data
    ids = draw_clients(data.num_clients, clients, seed)
    if not lambdas or min(lambdas) < 0:
        raise SimulationError(f"dissimilarity.lambdas = {list(lambdas)}; expected numbers of 0 or more")
    if batch_size < 1:
        raise SimulationError(f"dissimilarity.batch_size = {batch_size}; expected at least 1")
    distillation = distillation_term(run)
    progress("one more round", 0, None)
    start, end = next_round(run)
    model = context.trainer.model
    normalised, unnormalised, uniform = (GradientMoments(start) for _ in range(3))
    proportions = []
    adaptive = distillation.weighting == "adaptive"
    for number, k in enumerate(ids, 1):
        local = data.client(k)
        inputs = channels_last(to_float(send(local.inputs, start.device), data.mean, data.std, start.dtype))
        targets = send(local.targets, start.device)
        prior = label_proportions(targets, data.num_classes, dtype=start.dtype)
        found = gradients(model, end, start, inputs, targets, prior, distillation, batch_size, with_uniform=adaptive)
        normalised.add(found.ce, found.asd)
        unnormalised.add(found.ce, found.asd, found.factor)
        if found.uniform is not None:
            uniform.add(found.ce, found.uniform)
        proportions.append(prior.double().cpu())
        progress("gradients of clients", number, len(ids))
    weight = config.distillation.weight if config.distillation else 0.0
    inputs, targets = training_samples(run, samples, seed)

    def class_gradient(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        # Equal proportions: the proposition takes them out of the weights of a class.
        ones = torch.ones(data.num_classes, dtype=start.dtype, device=start.device)
        found = gradients(model, end, start, x, y, ones, distillation, batch_size)
        return found.ce, found.asd * found.factor

    label_ratio, support_ratio = label_ratios(torch.stack(proportions))
    condition = Assumptions(
        label_ratio,
        support_ratio,
        *class_gradients(inputs, targets, data.num_classes, len(start), class_gradient, seed, progress),
    )
    lambdas = tuple(sorted({*lambdas, weight}))

    def curve(moments: GradientMoments) -> DissimilarityCurve:
        return DissimilarityCurve.of(moments.ratio(), lambdas, weight, len(ids), data.num_clients)

    return Dissimilarity(
        round=run.state.round + 1,
        clients=len(ids),
        population=data.num_clients,
        seed=seed,
        weight=weight,
        lambdas=lambdas,
        normalised=curve(normalised),
        unnormalised=curve(unnormalised),
        uniform=curve(uniform) if adaptive else None,
        condition=condition,
    )


def draw_clients(population: int, number: int, seed: int) -> list[int]:
    """Ids of clients; number 0: all, or MAX_CLIENTS of them."""
    if number < 0 or number > population:
        raise SimulationError(f"dissimilarity.clients = {number}; expected 1 .. {population}, or 0 for all")
    number = number or min(population, MAX_CLIENTS)
    if number == population:
        return list(range(population))
    drawn = generator(seed, Stream.ANALYSIS, 4).choice(population, number, replace=False)
    return sorted(drawn.tolist())


def distillation_term(run: LoadedRun) -> Distillation:
    """The distillation term of the run's clients; if they have none, the one ASD would add with its settings."""
    config = run.context.experiment.config
    settings = {name: value for name, value in plain(config.asd).items() if name != "enabled"}
    return config.distillation or Distillation(**settings)


def next_round(run: LoadedRun) -> tuple[Tensor, Tensor]:
    """w_t of the last checkpoint and w_{t+1} after one more round; the clients' state is restored afterwards."""
    context, records = run.context, run.context.records
    assert isinstance(records, ClientStore)
    try:
        with threads(context.parallelism.threads):
            after, _ = run_round(context.experiment, local_executor(context), run.state)
    finally:
        records.rollback()
    if torch.equal(after.cloud, run.state.cloud):
        raise SimulationError(
            f"round {after.round} left the model as it was (no client returned one), so distillation has no gradient; "
            "analyse another checkpoint"
        )
    return run.state.cloud, after.cloud


class ClientGradients(NamedTuple):
    """Gradients [P] over all samples of a client."""

    ce: Tensor  # of the mean cross-entropy
    asd: Tensor  # of sum_i alpha_i D_i, where the alpha sum to one
    factor: float  # by which `asd` is multiplied to use unnormalised weights, as a mean over the samples
    uniform: Tensor | None  # of the mean of D_i


def gradients(
    model: FlatModel,
    student: Tensor,
    teacher: Tensor,
    inputs: Tensor,
    targets: Tensor,
    prior: Tensor,
    distillation: Distillation,
    batch_size: int,
    with_uniform: bool = False,
) -> ClientGradients:
    """At `student` [P]; `with_uniform`: with uniform weights too."""
    options = distillation.options()
    with model.holding(teacher) as module:
        cache = TeacherCache.build(
            module, inputs, targets, prior, dtype=teacher.dtype, batch_size=batch_size, **distillation.teacher_options()
        )
    adaptive = distillation.weighting == "adaptive"
    log_weight = cache.log_weight if adaptive else torch.zeros_like(cache.log_weight)
    total = log_weight.logsumexp(0)
    ce, asd, uniform = (torch.zeros_like(student) for _ in range(3))
    with model.holding(student) as module:
        module.eval()
        for rows in torch.arange(len(targets), device=targets.device).split(batch_size):
            logits, y = module(inputs[rows]), targets[rows]
            # The loss normalises alpha over each batch: scale by the batch's part in the sum over all samples.
            part = float((log_weight[rows].logsumexp(0) - total).exp())
            even = len(rows) / len(targets)
            terms = [(ce, (0.0, 1.0), options, even), (asd, (1.0, 0.0), options, part)]
            if with_uniform:
                terms.append((uniform, (1.0, 0.0), options | {"weighting": "uniform"}, even))
            for into, weights, keywords, scale in terms:
                model.gradient.zero_()
                _, gradient = asd_loss_and_grad(logits, cache[rows], y, None, *weights, **keywords)
                logits.backward(gradient, retain_graph=into is not terms[-1][0])
                into.add_(model.gradient, alpha=scale)
    return ClientGradients(ce, asd, float(total.exp() / len(targets)), uniform if with_uniform else None)


def _range_text(lambda_c: float | None) -> str:
    return "for no large lambda" if lambda_c is None else f"from lambda {lambda_c:.3g} on"

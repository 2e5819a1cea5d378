"""Gradient dissimilarity G_d(w, lambda) of a run, and what the paper's proposition about it asks for.

At w_t, with w_t as the teacher, the distillation has no gradient and lambda does not matter.  So G_d is measured at
w_{t+1} with the teacher w_t: one more round is run from the last checkpoint, in memory.  Gradients are of a client's
whole training set, not augmented, in eval mode, and every client counts alike, as in the paper's definition.  Some
clients, drawn, look more alike than all of them are; G_d of all is estimated beside (ratio.of_population).

Any pull towards the teacher makes clients more alike.  So the same curve is there for uniform weights: what lies
between the two is what ASD's weights do.

Two scales of lambda: with the weights alpha normalised over the client's samples lambda is that of the experiments;
the proposition is about weights that are not normalised, where each client has a factor of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..algorithms import Distillation
from ..common.progress import Tell, silent
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
from .assumptions import Condition, class_gradients, label_ratios
from .dissimilarity_ratio import Moments, Ratio, of_population
from .loaded_run import OpenedRun
from .selection import training_samples

LAMBDAS = (0.0, 1.0, 5.0, 10.0, 20.0, 30.0)
CLIENTS = 1000  # in larger populations so many are drawn, unless told otherwise


@dataclass(frozen=True)
class Curve:
    """G_d over lambda."""

    ratio: Ratio  # all of it, see ratio.py
    values: tuple[float | None, ...]  # at the lambdas
    population: tuple[float | None, ...]  # likewise, estimated for all clients; the same if all of them are in it
    limit: float | None
    lambda_c: float | None  # from there on lower than at 0; None: that holds for no end of the axis
    best: float | None  # where it is lowest; None: it falls without end
    slope: float | None  # at the run's own lambda

    @staticmethod
    def of(ratio: Ratio, lambdas: Sequence[float], weight: float, drawn: int, population: int) -> Curve:
        values = tuple(ratio(x) for x in lambdas)
        all_clients = tuple(of_population(ratio, x, drawn, population) for x in lambdas)
        return Curve(ratio, values, all_clients, ratio.limit, ratio.lambda_c, ratio.best, ratio.slope(weight))


@dataclass(frozen=True)
class Dissimilarity:
    round: int  # t + 1, where it is measured; the teacher is of the round before
    clients: int  # whose gradients are in it
    population: int
    seed: int
    weight: float  # the run's lambda; 0: it has no distillation, and the curve is what ASD would do here
    lambdas: tuple[float, ...]
    normalised: Curve
    unnormalised: Curve
    uniform: Curve | None  # with weights 1 / n_k, for comparison; None: the run has these itself
    condition: Condition

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
                f"  large lambda     {_text(curve.limit)}; lowest at lambda {_text(curve.best, 'without end')}",
                f"  lower than at 0  {_from(curve.lambda_c)}; weights not normalised: "
                f"{_from(self.unnormalised.lambda_c)}",
                f"  at lambda {self.weight or self.lambdas[-1]:<6g} {self._conclusion()}",
                *self.condition.lines(self.unnormalised.ratio),
            ]
        )

    def _pairs(self, values: Sequence[float | None]) -> str:
        return "  ".join(f"{x:g}: {_text(value)}" for x, value in zip(self.lambdas, values, strict=True))

    def _conclusion(self) -> str:
        """What the proposition promises from some lambda on, at the run's own, or at the largest if it has none."""
        at, ratio = self.weight or self.lambdas[-1], self.normalised.ratio
        value, first, slope = ratio(at), ratio(0.0), ratio.slope(at)
        if value is None or first is None or slope is None:
            return "undefined: the clients' gradients sum to nothing"
        lower = "lower than" if value < first else "not lower than"
        return f"{lower} at 0, and {'falling' if slope < 0 else 'not falling'} with lambda"


def dissimilarity(
    run: OpenedRun,
    *,
    clients: int = 0,
    lambdas: tuple[float, ...] = LAMBDAS,
    samples: int | None = 5000,
    seed: int = 0,
    batch_size: int = 500,
    tell: Tell = silent,
) -> Dissimilarity:
    """clients 0: all, or CLIENTS of a larger population; `samples` are those that class-wise gradients are from."""
    config, data = run.context.experiment.config, run.context.experiment.data
    ids = drawn_clients(data.num_clients, clients, seed)
    if not lambdas or min(lambdas) < 0:
        raise SimulationError(f"dissimilarity.lambdas = {list(lambdas)}; expected numbers of 0 or more")
    if batch_size < 1:
        raise SimulationError(f"dissimilarity.batch_size = {batch_size}; expected at least 1")
    distillation = term(run)
    tell("one more round", 0, None)
    start, end = next_round(run)
    model = run.context.trainer.model
    normalised, plain_sums, even, shares = Moments(start), Moments(start), Moments(start), []
    adaptive = distillation.weighting == "adaptive"
    for number, k in enumerate(ids, 1):
        local = data.client(k)
        inputs = channels_last(to_float(send(local.inputs, start.device), data.mean, data.std, start.dtype))
        targets = send(local.targets, start.device)
        prior = label_proportions(targets, data.num_classes, dtype=start.dtype)
        found = gradients(model, end, start, inputs, targets, prior, distillation, batch_size, beside=adaptive)
        normalised.add(found.ce, found.asd)
        plain_sums.add(found.ce, found.asd, found.factor)
        if found.uniform is not None:
            even.add(found.ce, found.uniform)
        shares.append(prior.double().cpu())
        tell("gradients of clients", number, len(ids))
    weight = config.distillation.weight if config.distillation else 0.0
    inputs, targets = training_samples(run, samples, seed)

    def of_class(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        ones = torch.ones(data.num_classes, dtype=start.dtype, device=start.device)  # no share in these weights
        found = gradients(model, end, start, x, y, ones, distillation, batch_size)
        return found.ce, found.asd * found.factor

    label_ratio, support_ratio = label_ratios(torch.stack(shares))
    condition = Condition(
        label_ratio,
        support_ratio,
        *class_gradients(inputs, targets, data.num_classes, len(start), of_class, seed, tell),
    )
    lambdas = tuple(sorted({*lambdas, weight}))

    def curve(moments: Moments) -> Curve:
        return Curve.of(moments.ratio(), lambdas, weight, len(ids), data.num_clients)

    return Dissimilarity(
        round=run.state.round + 1,
        clients=len(ids),
        population=data.num_clients,
        seed=seed,
        weight=weight,
        lambdas=lambdas,
        normalised=curve(normalised),
        unnormalised=curve(plain_sums),
        uniform=curve(even) if adaptive else None,
        condition=condition,
    )


def drawn_clients(population: int, number: int, seed: int) -> list[int]:
    """0: all, or CLIENTS of them."""
    if number < 0 or number > population:
        raise SimulationError(f"dissimilarity.clients = {number}; expected 1 .. {population}, or 0 for all")
    number = number or min(population, CLIENTS)
    if number == population:
        return list(range(population))
    drawn = generator(seed, Stream.ANALYSIS, 4).choice(population, number, replace=False)
    return sorted(drawn.tolist())


def term(run: OpenedRun) -> Distillation:
    """The distillation of the run's clients; if they have none, what ASD would add with the run's settings."""
    config = run.context.experiment.config
    settings = {name: value for name, value in plain(config.asd).items() if name != "enabled"}
    return config.distillation or Distillation(**settings)


def next_round(run: OpenedRun) -> tuple[Tensor, Tensor]:
    """w_t, the last checkpoint's, and w_{t+1}, of one more round; records of clients are as before afterwards."""
    context, records = run.context, run.context.records
    assert isinstance(records, ClientStore)
    try:
        with threads(context.parallelism.threads):
            after, _ = run_round(context.experiment, local_executor(context), run.state)
    finally:
        records.rollback()
    if torch.equal(after.cloud, run.state.cloud):
        raise SimulationError(
            f"round {after.round} left the model as it was (nobody returned one), so distillation has no gradient; "
            "analyse another checkpoint"
        )
    return run.state.cloud, after.cloud


class Gradients(NamedTuple):
    """[P] each, over all samples of a client."""

    ce: Tensor  # of the mean cross-entropy
    asd: Tensor  # of sum_i alpha_i D_i, with alpha that sum to one
    factor: float  # makes the weights of `asd` un-normalised, as a mean over the samples
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
    beside: bool = False,
) -> Gradients:
    """At `student` [P]; `beside`: those of uniform weights too."""
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
            # A batch's own alpha sum to one: its part in those of all samples, and in their mean.
            part = float((log_weight[rows].logsumexp(0) - total).exp())
            even = len(rows) / len(targets)
            terms = [(ce, (0.0, 1.0), options, even), (asd, (1.0, 0.0), options, part)]
            if beside:
                terms.append((uniform, (1.0, 0.0), options | {"weighting": "uniform"}, even))
            for into, weights, keywords, share in terms:
                model.gradient.zero_()
                _, gradient = asd_loss_and_grad(logits, cache[rows], y, None, *weights, **keywords)
                logits.backward(gradient, retain_graph=into is not terms[-1][0])
                into.add_(model.gradient, alpha=share)
    return Gradients(ce, asd, float(total.exp() / len(targets)), uniform if beside else None)


def _text(value: float | None, none: str = "undefined") -> str:
    return none if value is None else f"{value:.4g}"


def _from(lambda_c: float | None) -> str:
    return "for no large lambda" if lambda_c is None else f"from lambda {lambda_c:.3g} on"

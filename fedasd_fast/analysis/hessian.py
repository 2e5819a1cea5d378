"""The Hessian of the global model's training loss: how flat is the minimum that a run has found?

Top eigenvalues by ARPACK (scipy), the trace by Hutchinson's estimator and the spectral density by stochastic Lanczos
quadrature (both curvlinops), all from products of the Hessian with vectors.  The loss is the mean cross-entropy over
training samples of all clients, without augmentation and in eval mode; distillation is no part of it, weight decay only
if asked for.  Few samples inflate the top eigenvalue, so numbers can be compared only if they are from equally many.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .. import presets
from ..common.formatting import written
from ..common.progress import Tell, silent
from ..common.schema import ConfigError, plain
from ..config import Config
from ..simulation.errors import SimulationError
from .loaded_run import OpenedRun
from .selection import model_name, training_samples
from .spectrum import Passes, Spectrum, hessian_operator, shifted, spectrum

SAMPLES = 5000
_TABLES = ("table1_hessian", "table12_hessian_rest")
_LARGE = 100_000  # parameters from which on the density of one random vector is that of all: it varies by P^-1/2


@dataclass(frozen=True)
class Paper:
    """The paper's numbers for this setting."""

    source: str
    top_eigenvalue: float
    trace: float
    differs: tuple[str, ...]  # settings that are other than the paper's
    suspect: str | None


@dataclass(frozen=True)
class Hessian:
    model: str  # which averaged model
    round: int
    samples: int
    seed: int
    parameters: int
    weight_decay: float  # added to every eigenvalue
    loss: float  # mean cross-entropy of these samples
    spectrum: Spectrum
    products: int  # of the Hessian with a vector
    seconds: float
    paper: Paper | None

    def to_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = plain(self)
        return values

    def __str__(self) -> str:
        s, p = self.spectrum, self.paper
        lines = [
            f"Hessian of the model `{self.model}` after round {self.round}, {self.samples} training samples "
            f"(loss {self.loss:.4f})",
            f"  top eigenvalues  {'  '.join(f'{value:.4g}' for value in s.top)}",
            f"  smallest         {s.smallest:.4g}",
            f"  trace            {written(s.trace)} ± {written(s.trace_error)} ({s.probes} probes)",
            f"  cost             {self.products} products with vectors, {self.seconds:.1f} s",
        ]
        if p:
            other = f"; here other {', '.join(p.differs)}" if p.differs else ""
            suspect = f"; suspect: {p.suspect}" if p.suspect else ""
            lines.append(
                f"  paper            top eigenvalue {p.top_eigenvalue:g}, trace {p.trace:g} "
                f"({p.source.split(' (')[0]}{other}{suspect}; its number of samples is not known)"
            )
        return "\n".join(lines)


def hessian(
    run: OpenedRun,
    *,
    model: str | None = None,
    samples: int | None = SAMPLES,
    seed: int = 0,
    top: int = 5,
    probes: int = 100,
    trace_tolerance: float = 0.01,
    lanczos_steps: int = 100,
    lanczos_runs: int = 0,
    weight_decay: bool = False,
    batch_size: int = 0,
    tell: Tell = silent,
) -> Hessian:
    """At the run's last checkpoint.  samples None: all.  lanczos_runs 0: one if the model is large, else five.
    batch_size 0: 250 images, whose activations fill memory, or 5000 other samples."""
    _at_least(0, lanczos_runs=lanczos_runs, batch_size=batch_size)
    _at_least(1, top=top, probes=probes)
    _at_least(2, lanczos_steps=lanczos_steps)
    name = model_name(run, model)
    inputs, targets = training_samples(run, samples, seed)
    batch_size = batch_size or (250 if run.context.experiment.data.is_image else 5000)
    passes, began = Passes(inputs, targets, batch_size), time.perf_counter()
    flat = run.context.trainer.model
    with flat.holding(run.model(name)) as module:
        module.eval()
        loss = mean_loss(module, passes)
        if not math.isfinite(loss):
            raise SimulationError(f"the loss of the model `{name}` is {loss}: it diverged, and has no Hessian")
        passes.done = 0
        operator = hessian_operator(module, passes, len(targets))
        runs = lanczos_runs or (1 if len(flat) >= _LARGE else 5)
        found = spectrum(
            operator, top=top, probes=probes, trace_tolerance=trace_tolerance, lanczos_steps=lanczos_steps,
            lanczos_runs=runs, seed=seed, tell=tell, passes=passes,
        )  # fmt: skip
    decay = run.context.experiment.config.optimizer.weight_decay if weight_decay else 0.0
    return Hessian(
        model=name,
        round=run.state.round,
        samples=len(targets),
        seed=seed,
        parameters=len(flat),
        weight_decay=decay,
        loss=loss,
        spectrum=shifted(found, decay, len(flat)),
        products=passes.done,
        seconds=time.perf_counter() - began,
        paper=paper_numbers(run.context.experiment.config),
    )


def mean_loss(module: nn.Module, batches: Passes) -> float:
    with torch.inference_mode():
        sums = [(float(F.cross_entropy(module(x), y, reduction="sum")), len(y)) for x, y in batches]
    return sum(loss for loss, _ in sums) / sum(number for _, number in sums)


def paper_numbers(config: Config) -> Paper | None:
    """Of tables 1 and 12, if the run is of such a preset, or is the same experiment under another name."""
    for name in _tables(config):
        found = presets.expected(config.replace(name=name))
        if found and found.others and (name == config.name or found.comparable):
            top, trace = found.others["top_eigenvalue"], found.others["trace"]
            return Paper(found.source, top, trace, found.differs, found.suspect)
    return None


def _tables(config: Config) -> Sequence[str]:
    return [config.name, *_TABLES] if config.name in presets.names() else _TABLES


def _at_least(least: int, **options: int) -> None:
    for name, value in options.items():
        if value < least:
            raise ConfigError(f"hessian.{name} = {value}; expected a whole number of at least {least}")

"""Hessian of the global model's training loss: how flat is the minimum that a run has found?

Top eigenvalues by ARPACK (scipy), the trace by Hutchinson's estimator and the spectral density by stochastic Lanczos
quadrature (both curvlinops), all from products of the Hessian with vectors.  The loss is the mean cross-entropy over
training samples of all clients, without augmentation and in eval mode; it does not include distillation, and weight
decay only on request.  Few samples inflate the top eigenvalue: compare only results from equally many samples.
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
from ..common.formatting import format_number
from ..common.progress import ProgressFunction, no_progress
from ..common.schema import ConfigError, plain
from ..config import Config
from ..simulation.errors import SimulationError
from .loaded_run import LoadedRun
from .selection import select_model, training_samples
from .spectrum import CountedBatches, Spectrum, hessian_operator, shifted, spectrum

DEFAULT_SAMPLES = 5000
_HESSIAN_TABLES = ("table1_hessian", "table12_hessian_rest")
_LARGE_MODEL = 100_000  # parameters: then the density of one random vector is accurate, as it varies by P^-1/2


@dataclass(frozen=True)
class PaperHessian:
    """The paper's numbers for this setting."""

    source: str
    top_eigenvalue: float
    trace: float
    differs: tuple[str, ...]  # settings that differ from the paper's
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
    paper: PaperHessian | None

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
            f"  trace            {format_number(s.trace)} ± {format_number(s.trace_error)} ({s.probes} probes)",
            f"  cost             {self.products} products with vectors, {self.seconds:.1f} s",
        ]
        if p:
            other = f"; different here: {', '.join(p.differs)}" if p.differs else ""
            suspect = f"; suspect: {p.suspect}" if p.suspect else ""
            lines.append(
                f"  paper            top eigenvalue {p.top_eigenvalue:g}, trace {p.trace:g} "
                f"({p.source.split(' (')[0]}{other}{suspect}; its number of samples is unknown)"
            )
        return "\n".join(lines)


def hessian(
    run: LoadedRun,
    *,
    model: str | None = None,
    samples: int | None = DEFAULT_SAMPLES,
    seed: int = 0,
    top: int = 5,
    probes: int = 100,
    trace_tolerance: float = 0.01,
    lanczos_steps: int = 100,
    lanczos_runs: int = 0,
    weight_decay: bool = False,
    batch_size: int = 0,
    progress: ProgressFunction = no_progress,
) -> Hessian:
    """At the run's last checkpoint.

    samples None: all.  lanczos_runs 0: one if the model is large, else five.  batch_size 0: 250 images, because their
    activations need much memory, or 5000 other samples.
    """
    _require_at_least(0, lanczos_runs=lanczos_runs, batch_size=batch_size)
    _require_at_least(1, top=top, probes=probes)
    _require_at_least(2, lanczos_steps=lanczos_steps)
    name = select_model(run, model)
    inputs, targets = training_samples(run, samples, seed)
    batch_size = batch_size or (250 if run.context.experiment.data.is_image else 5000)
    passes, began = CountedBatches(inputs, targets, batch_size), time.perf_counter()
    flat = run.context.trainer.model
    with flat.holding(run.model(name)) as module:
        module.eval()
        loss = mean_loss(module, passes)
        if not math.isfinite(loss):
            raise SimulationError(
                f"the loss of the model `{name}` is {loss}: it has diverged, and its Hessian is undefined"
            )
        passes.done = 0
        operator = hessian_operator(module, passes, len(targets))
        runs = lanczos_runs or (1 if len(flat) >= _LARGE_MODEL else 5)
        found = spectrum(
            operator, top=top, probes=probes, trace_tolerance=trace_tolerance, lanczos_steps=lanczos_steps,
            lanczos_runs=runs, seed=seed, progress=progress, passes=passes,
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


def mean_loss(module: nn.Module, batches: CountedBatches) -> float:
    with torch.inference_mode():
        sums = [(float(F.cross_entropy(module(x), y, reduction="sum")), len(y)) for x, y in batches]
    return sum(loss for loss, _ in sums) / sum(number for _, number in sums)


def paper_numbers(config: Config) -> PaperHessian | None:
    """Of tables 1 and 12, if the run is of such a preset, or the same experiment under another name."""
    for name in _tables_to_search(config):
        found = presets.expected(config.replace(name=name))
        if found and found.others and (name == config.name or found.comparable):
            top, trace = found.others["top_eigenvalue"], found.others["trace"]
            return PaperHessian(found.source, top, trace, found.differs, found.suspect)
    return None


def _tables_to_search(config: Config) -> Sequence[str]:
    return [config.name, *_HESSIAN_TABLES] if config.name in presets.names() else _HESSIAN_TABLES


def _require_at_least(least: int, **options: int) -> None:
    for name, value in options.items():
        if value < least:
            raise ConfigError(f"hessian.{name} = {value}; expected a whole number of at least {least}")

"""What can be known of a symmetric operator from its products with vectors: top eigenvalues, trace, spectral density.

ARPACK, Hutchinson's estimator and stochastic Lanczos quadrature, by scipy and curvlinops; here is what is around them:
seeds, progress, a standard error, and errors that say what to do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..common.progress import Tell, silent
from ..common.randomness import Stream, generator, torch_seeded
from ..simulation.errors import SimulationError


@dataclass(frozen=True)
class Spectrum:
    top: tuple[float, ...]  # the largest eigenvalues, falling
    smallest: float  # of the Lanczos quadrature: at or above the smallest eigenvalue, and near it
    trace: float
    trace_error: float  # standard error
    probes: int  # random vectors that the trace is from
    grid: tuple[float, ...]  # eigenvalues
    density: tuple[float, ...]  # of the spectrum there; its integral is 1


class Passes:
    """Batches as an operator goes through them; a pass is a product with a vector."""

    def __init__(self, inputs: Tensor, targets: Tensor, batch_size: int) -> None:
        self._batches = list(zip(inputs.split(batch_size), targets.split(batch_size), strict=True))
        self.done = 0
        self._told: Callable[[], None] = lambda: None

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield from self._batches
        self.done += 1
        self._told()

    def tell(self, tell: Tell, what: str, total: int | None) -> None:
        """After each pass from here on, how many there were since."""
        first = self.done
        self._told = lambda: tell(what, self.done - first, total)


def hessian_operator(module: nn.Module, batches: Passes, number: int, loss: nn.Module | None = None) -> Any:
    """curvlinops' operator of the mean (or what `loss` says) over `number` samples, for the trained parameters."""
    try:
        from curvlinops import HessianLinearOperator
    except ImportError:
        raise _missing() from None
    trained = [p for p in module.parameters() if p.requires_grad]
    loss = loss or nn.CrossEntropyLoss()
    # Eval mode has no randomness; to make sure would cost products.
    return HessianLinearOperator(module, loss, trained, batches, check_deterministic=False, num_data=number)


def spectrum(
    operator: Any,
    *,
    top: int = 5,
    probes: int = 100,
    trace_tolerance: float = 0.01,
    lanczos_steps: int = 100,
    lanczos_runs: int = 5,
    points: int = 1024,
    seed: int = 0,
    tell: Tell = silent,
    passes: Passes | None = None,
) -> Spectrum:
    """Of a symmetric operator of curvlinops.

    Probes for the trace end when its standard error is `trace_tolerance` of it (at least ten are made).
    """

    def begins(what: str, products: int | None) -> None:
        if passes:
            passes.tell(tell, what, products)

    size = int(operator.shape[0])
    if size < 3:
        raise SimulationError(f"the model has {size} parameters; expected at least 3 to estimate a spectrum")
    begins("top eigenvalues, products", None)
    largest = top_eigenvalues(operator, min(top, size - 2), seed)
    begins("trace, probes", probes)
    trace, error, made = trace_of(operator, probes, trace_tolerance, seed)
    steps = min(lanczos_steps, size)
    begins("density, Lanczos steps", lanczos_runs * steps)
    grid, density, smallest = density_of(operator, steps, lanczos_runs, points, largest[0], seed)
    return Spectrum(largest, smallest, trace, error, made, grid, density)


def top_eigenvalues(operator: Any, number: int, seed: int) -> tuple[float, ...]:
    """The algebraically largest, falling, each to a thousandth."""
    try:
        from scipy.sparse.linalg import ArpackNoConvergence, eigsh
    except ImportError:
        raise _missing() from None
    start = generator(seed, Stream.ANALYSIS, 1).standard_normal(operator.shape[0])
    try:
        # ARPACK keeps its vectors orthogonal in float64; the products have the precision of the model.
        plain_operator = operator.to_scipy(np.float64)
        found = eigsh(plain_operator, k=number, which="LA", v0=start, tol=1e-3, return_eigenvectors=False)
    except ArpackNoConvergence as error:
        raise SimulationError(
            f"only {len(error.eigenvalues)} of {number} top eigenvalues were found; ask for fewer (hessian.top=1) or "
            "take more samples"
        ) from None
    return tuple(sorted(map(float, found), reverse=True))


def trace_of(operator: Any, probes: int, tolerance: float, seed: int) -> tuple[float, float, int]:
    """Hutchinson's estimate with Rademacher probes, its standard error, and how many probes were made."""
    from curvlinops import hutchinson_trace

    values: list[float] = []
    with torch_seeded(seed, Stream.ANALYSIS, 2):
        while len(values) < max(2, probes):
            values.append(float(hutchinson_trace(operator, num_matvecs=1)))  # one by one: they tell the error
            error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf
            if len(values) >= 10 and error <= tolerance * abs(float(np.mean(values))):
                break
    return float(np.mean(values)), error, len(values)


def density_of(
    operator: Any, steps: int, runs: int, points: int, largest: float, seed: int
) -> tuple[tuple[float, ...], tuple[float, ...], float]:
    """Eigenvalues, the density of the spectrum there, and the smallest node of the quadrature."""
    from curvlinops.papyan2020traces.spectrum import fast_lanczos, lanczos_approximate_spectrum_from_iter

    with torch_seeded(seed, Stream.ANALYSIS, 3):
        nodes = [_whole(*fast_lanczos(operator, steps)) for _ in range(runs)]
    smallest = min(float(values.min()) for values, _ in nodes)
    ends = smallest, max(largest, *(float(values.max()) for values, _ in nodes))
    # kappa, margin: those of Papyan (2020), which curvlinops' own functions have as defaults.
    curves = [lanczos_approximate_spectrum_from_iter(node, ends, points, 3.0, 0.05) for node in nodes]
    density = torch.stack([curve.double() for _, curve in curves]).mean(0)
    return tuple(curves[0][0].double().tolist()), tuple(density.tolist()), smallest


def _whole(values: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    if not bool(values.isfinite().all()):
        raise SimulationError(
            "the Lanczos iteration broke down: the Hessian has fewer different eigenvalues than it makes steps; take "
            "fewer (hessian.lanczos_steps=10)"
        )
    return values, vectors


def shifted(found: Spectrum, by: float, size: int) -> Spectrum:
    """The spectrum of H + by I: what weight decay adds to the loss, by ||w||^2 / 2, has that Hessian."""
    if not by:
        return found
    return Spectrum(
        top=tuple(value + by for value in found.top),
        smallest=found.smallest + by,
        trace=found.trace + by * size,
        trace_error=found.trace_error,
        probes=found.probes,
        grid=tuple(value + by for value in found.grid),
        density=found.density,
    )


def _missing() -> ModuleNotFoundError:
    return ModuleNotFoundError("the Hessian needs curvlinops and scipy: pip install 'fedasd-fast[analysis]'")

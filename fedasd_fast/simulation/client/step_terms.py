"""What a method says about local steps beyond its correction, for one client or for K stacked ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...algorithms import Client, LogitChange, Perturbation, Server
from ..experiment import Experiment
from ..vector_layout import VectorLayout
from .hook_errors import calling


@dataclass(frozen=True)
class StepTerms:
    factor: float | Tensor = 1.0  # on the gradient of the loss; [K, 1] for K clients
    perturbation: Perturbation | None = None  # its vectors are [P] or [K, P]; the dual one changes step by step
    logits: LogitChange | None = None  # its vectors are [C] or [K, 1, C]
    local_loss: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None  # inputs, targets, logits -> scalar


def step_terms(experiment: Experiment, server: Server, client: Client, like: Tensor) -> StepTerms:
    """Those of one client; vectors get the device and the dtype of `like`."""
    method, hooks, terms = experiment.method, experiment.hooks, StepTerms()
    if "gradient_factor" in hooks:
        with calling(method, "gradient_factor"):
            terms = replace(terms, factor=method.gradient_factor(server, client))
    if "perturbation" in hooks:
        with calling(method, "perturbation"):
            found = _shared(_perturbation(method.perturbation(server, client), like), experiment.layout)
            terms = replace(terms, perturbation=found)
    if "logits" in hooks:
        with calling(method, "logits"):
            terms = replace(terms, logits=_logits(method.logits(server, client), experiment.data.num_classes, like))
    return terms


def stacked_terms(terms: Sequence[StepTerms], like: Tensor) -> StepTerms:
    """Those of K clients as one; `like` is [K, P]."""
    factors = [term.factor for term in terms]
    return StepTerms(
        factor=1.0 if all(factor == 1.0 for factor in factors) else like.new_tensor(factors).unsqueeze(1),
        perturbation=_stacked_perturbation([term.perturbation for term in terms], like),
        logits=_stacked_logits([term.logits for term in terms]),
    )


def _perturbation(given: Perturbation | None, like: Tensor) -> Perturbation | None:
    if given is None:
        return None
    if (given.fixed is None) == (given.dual is None) or (given.dual is None) != (given.common is None):
        raise ValueError("expected a Perturbation with `fixed`, or with `dual` and `common`")

    def own(vector: Tensor | None) -> Tensor | None:
        """A copy: the dual vector changes, and the method's may be a client's record."""
        return None if vector is None else torch.empty_like(like).copy_(vector)

    return replace(given, fixed=own(given.fixed), dual=own(given.dual), common=own(given.common))


def _shared(given: Perturbation | None, layout: VectorLayout) -> Perturbation | None:
    """A fixed perturbation leaves what stays with the client as it is, and keeps its length."""
    if given is None or given.fixed is None or layout.local is None:
        return given
    fixed = layout.shared(given.fixed)
    length = torch.linalg.vector_norm(fixed).clamp(min=torch.finfo(fixed.dtype).tiny)
    return replace(given, fixed=fixed * (torch.linalg.vector_norm(given.fixed) / length))


def _logits(given: LogitChange | None, classes: int, like: Tensor) -> LogitChange | None:
    if given is None:
        return None

    def checked(name: str, vector: Tensor | None) -> Tensor | None:
        if vector is None:
            return None
        if vector.shape != (classes,):
            raise ValueError(f"{name} has shape {tuple(vector.shape)}; expected [{classes}], a number for each class")
        return vector.to(like)

    return LogitChange(checked("scale", given.scale), checked("shift", given.shift))


def _stacked_perturbation(given: Sequence[Perturbation | None], like: Tensor) -> Perturbation | None:
    known = [one for one in given if one is not None]
    if not known:
        return None
    first = known[0]
    if any((one.rho, one.epsilon, one.dual is None) != (first.rho, first.epsilon, first.dual is None) for one in known):
        raise ValueError("perturbations of different kinds, or with different rho, cannot be stacked")
    if len(known) < len(given) and first.dual is not None:
        raise ValueError("a dual perturbation for some clients only cannot be stacked")

    def rows(name: str) -> Tensor | None:
        if getattr(first, name) is None:
            return None
        vectors = [None if one is None else getattr(one, name) for one in given]
        return torch.stack([torch.zeros_like(like[0]) if vector is None else vector for vector in vectors])

    return replace(first, fixed=rows("fixed"), dual=rows("dual"), common=rows("common"))


def _stacked_logits(given: Sequence[LogitChange | None]) -> LogitChange | None:
    def rows(name: str, neutral: float) -> Tensor | None:
        vectors = [None if one is None else getattr(one, name) for one in given]
        known = [vector for vector in vectors if vector is not None]
        if not known:
            return None
        filled = [torch.full_like(known[0], neutral) if vector is None else vector for vector in vectors]
        return torch.stack(filled).unsqueeze(1)

    return None if all(one is None for one in given) else LogitChange(rows("scale", 1.0), rows("shift", 0.0))

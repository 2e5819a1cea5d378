"""The compiled ops of the client update (torch.ops.fedasd.local_step_, ascend_, accumulate_) under fake tensors.

Schemas and kernels are registered in csrc/torch.  The ops return nothing, so all there is to trace are the checks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .update_checks import check_accumulation, check_ascent, check_step


def _local_step(
    w: Tensor,
    g: Tensor,
    velocity: Tensor | None,
    linear: Tensor | None,
    decays: Tensor | None,
    lrs: Tensor | None,
    norms: Tensor | None,
    quadratic: float,
    clip_norm: float | None,
    decay: float,
    lr: float,
    momentum: float,
) -> None:
    rate, shrinkage = lr if lrs is None else lrs, decay if decays is None else decays
    check_step(w, g, rate, quadratic, linear, clip_norm, shrinkage, velocity, momentum, norms, values=False)


def _ascend(w: Tensor, g: Tensor, saved: Tensor, rho: float, epsilon: float) -> None:
    check_ascent(w, g, saved, rho, epsilon)


def _accumulate(total: Tensor, values: Tensor, weights: Sequence[float]) -> None:
    check_accumulation(total, values, weights)


def register() -> None:
    """Called once, after the extension is loaded."""
    for name, fake in (("local_step_", _local_step), ("ascend_", _ascend), ("accumulate_", _accumulate)):
        torch.library.register_fake(f"fedasd::{name}", fake)

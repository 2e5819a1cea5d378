"""The local step on flat vectors, readable: w <- w - lr (clip(g + a w + v) + (weight_decay + decay) w)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..algorithms import Correction
from ..config import Optimizer


def step(
    w: Tensor, g: Tensor, velocity: Tensor | None, correction: Correction, optimizer: Optimizer, lr: float
) -> None:
    """Changes w (and velocity) in place; g is used up.  Clipping comes before weight decay, as torch.optim.SGD adds
    the decay itself."""
    if correction.quadratic:
        g.add_(w, alpha=correction.quadratic)
    if correction.linear is not None:
        g.add_(correction.linear)
    if optimizer.clip_norm is not None:
        g.mul_((optimizer.clip_norm / (torch.linalg.vector_norm(g) + 1e-6)).clamp_(max=1.0))
    decay = optimizer.weight_decay + correction.decay
    if decay:
        g.add_(w, alpha=decay)
    if velocity is not None:
        velocity.mul_(optimizer.momentum).add_(g)
        g = velocity
    w.add_(g, alpha=-lr)


def ascend(w: Tensor, g: Tensor, correction: Correction) -> None:
    """w <- w + rho g / (||g|| + epsilon), the sharpness-aware ascent step."""
    w.addcdiv_(g, torch.linalg.vector_norm(g) + correction.rho_epsilon, value=correction.rho)

"""AdamW on flat vectors, for one client [P] or for several at once [K, P] (Loshchilov and Hutter, 2019):

    u  = g + a w + v
    u  = min(1, clip / (||u|| + 1e-6)) u
    m <- b1 m + (1 - b1) u             q <- b2 q + (1 - b2) u^2             t <- t + 1
    w <- w - lr decay w - lr (m / (1 - b1^t)) / (sqrt(q / (1 - b2^t)) + eps)

So the clipped sum of loss gradient and correction takes the gradient's place, and the sum of the optimizer's and the
correction's decay is AdamW's own, which the moments do not see.  The moments live as long as a client's round.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...algorithms import Correction
from ...kernels.update_checks import check_step
from ...settings import Optimizer
from .fused_update import clipped_gradient, column


@dataclass(frozen=True)
class Moments:
    mean: Tensor  # m [P] or [K, P]
    square: Tensor  # q, the same
    steps: Tensor  # t float64 [] or [K]: clients of a stack have batches in different steps

    @classmethod
    def zeros_like(cls, w: Tensor) -> Moments:
        steps = torch.zeros(w.shape[:-1], dtype=torch.float64, device=w.device)
        return cls(torch.zeros_like(w), torch.zeros_like(w), steps)


def step(
    w: Tensor,  # [P] or [K, P]
    g: Tensor,  # the same; not changed
    moments: Moments,
    correction: Correction,
    optimizer: Optimizer,
    lr: float | Tensor,  # or float64 [K]; a client whose lr is 0 has finished: its w and moments stay as they are
    decay: float | Tensor,  # of optimizer and correction together; or float64 [K]
) -> None:
    """Changes w and moments in place."""
    quadratic, linear, clip_norm = correction.quadratic, correction.linear, optimizer.clip_norm
    check_step(w, g, lr, quadratic, linear, clip_norm, decay, None, 0.0, None)
    rate, shrinkage = column(lr, w, torch.float64), column(decay, w, torch.float64)
    finished, (b1, b2) = rate == 0, optimizer.betas
    u, _ = clipped_gradient(w, g, quadratic, linear, clip_norm)
    u.masked_fill_(finished, 0.0)  # whatever it was
    moments.steps.add_((~finished).squeeze(-1))
    moments.mean.lerp_(u, torch.full_like(rate, 1 - b1).masked_fill_(finished, 0.0).to(w.dtype))
    moments.square.mul_(torch.full_like(rate, b2).masked_fill_(finished, 1.0).to(w.dtype))
    moments.square.addcmul_(u, u, value=1 - b2)
    t = moments.steps.clamp(min=1.0).unsqueeze(-1)
    size, root = rate / (1 - b1**t), (1 - b2**t).sqrt()
    length = torch.sqrt(moments.square, out=u).div_(root.to(w.dtype)).add_(optimizer.eps)
    w.mul_((1 - rate * shrinkage).to(w.dtype))
    w.addcmul_(torch.div(moments.mean, length, out=u), size.to(w.dtype), value=-1.0)

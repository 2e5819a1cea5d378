"""The client update on flat vectors, for one client [P] or for several at once [K, P]:

    u  = g + a w + v
    d  = min(1, clip / (||u|| + 1e-6)) u + decay w
    d  = velocity <- momentum velocity + d             with momentum only
    w <- w - lr d

The `reference_` functions are what it means; where there is a compiled kernel for the device, one call does it all
(docs/kernels.md).  Clients do not see each other: a row has the norm, the factor and the bits that it has alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...algorithms import Correction
from ...kernels import loader
from ...kernels.update_checks import check_ascent, check_step
from ...settings import Optimizer


def step(
    w: Tensor,
    g: Tensor,
    velocity: Tensor | None,
    correction: Correction,
    optimizer: Optimizer,
    lr: float | Tensor,
    *,
    decay: float | Tensor | None = None,
    implementation: str = "auto",
) -> None:
    """Changes w (and velocity) in place.  Clipping comes before weight decay, as torch.optim.SGD adds the decay
    itself.  `decay` takes the place of the sum of the optimizer's and the correction's."""
    local_step(
        w, g, lr, quadratic=correction.quadratic, linear=correction.linear, clip_norm=optimizer.clip_norm,
        decay=optimizer.weight_decay + correction.decay if decay is None else decay, velocity=velocity,
        momentum=0.0 if velocity is None else optimizer.momentum, implementation=implementation,
    )  # fmt: skip


def local_step(
    w: Tensor,  # [P] or [K, P]
    g: Tensor,  # the same; not changed
    lr: float | Tensor,  # or float64 [K]; a client whose lr is 0 has finished: its w and velocity stay as they are
    *,
    quadratic: float = 0.0,  # a
    linear: Tensor | None = None,  # v [P] or [K, P]
    clip_norm: float | None = None,
    decay: float | Tensor = 0.0,  # or float64 [K]
    velocity: Tensor | None = None,  # the same as w
    momentum: float = 0.0,
    norms: Tensor | None = None,  # float64 [K], or []: filled with ||u||, 0 of a finished client
    implementation: str = "auto",
) -> None:
    """Changes w, velocity and norms in place; nothing else may share memory with them."""
    if not loader.use_fused(implementation, w):
        reference_step(w, g, lr, quadratic, linear, clip_norm, decay, velocity, momentum, norms)
        return
    lrs, lr = (lr, 0.0) if isinstance(lr, Tensor) else (None, lr)
    decays, decay = (decay, 0.0) if isinstance(decay, Tensor) else (None, decay)
    op = torch.ops.fedasd.local_step_.default if torch.compiler.is_compiling() else loader.module.local_step_
    op(w, g, velocity, linear, decays, lrs, norms, quadratic, clip_norm, decay, lr, momentum)


def ascend(
    w: Tensor, g: Tensor, correction: Correction, saved: Tensor | None = None, *, implementation: str = "auto"
) -> Tensor:
    """w <- w + rho g / (||g|| + epsilon), the sharpness-aware ascent step of each client.

    Returns `saved`, which holds w as it was (w + e - e would not give it back): w.copy_(saved) undoes the step.
    """
    saved = torch.empty_like(w) if saved is None else saved
    rho, epsilon = correction.rho, correction.rho_epsilon
    if not loader.use_fused(implementation, w):
        reference_ascend(w, g, saved, rho, epsilon)
    else:
        op = torch.ops.fedasd.ascend_.default if torch.compiler.is_compiling() else loader.module.ascend_
        op(w, g, saved, rho, epsilon)
    return saved


def reference_step(
    w: Tensor,
    g: Tensor,
    lr: float | Tensor,
    quadratic: float = 0.0,
    linear: Tensor | None = None,
    clip_norm: float | None = None,
    decay: float | Tensor = 0.0,
    velocity: Tensor | None = None,
    momentum: float = 0.0,
    norms: Tensor | None = None,
) -> None:
    check_step(w, g, lr, quadratic, linear, clip_norm, decay, velocity, momentum, norms)
    rate, shrinkage = column(lr, w), column(decay, w)
    finished = rate == 0
    d, norm = clipped_gradient(w, g, quadratic, linear, clip_norm, with_norm=norms is not None)
    if norms is not None and norm is not None:
        norms.copy_(norm.masked_fill_(finished, 0.0).squeeze(-1))
    d.addcmul_(w, shrinkage)
    if velocity is not None:
        d.add_(velocity, alpha=momentum)
        velocity.copy_(torch.where(finished, velocity, d))
    d.masked_fill_(finished, 0.0)  # whatever it was: w - 0 is w
    w.addcmul_(d, rate, value=-1.0)


def clipped_gradient(
    w: Tensor, g: Tensor, quadratic: float, linear: Tensor | None, clip_norm: float | None, with_norm: bool = False
) -> tuple[Tensor, Tensor | None]:
    """min(1, clip / (||u|| + 1e-6)) u, and ||u|| [.., 1] if it is needed."""
    u = torch.add(g, w, alpha=quadratic)
    if linear is not None:
        u += linear
    if clip_norm is None and not with_norm:
        return u, None
    norm = torch.linalg.vector_norm(u, dim=-1, keepdim=True)
    if clip_norm is not None:
        u *= (clip_norm / (norm + 1e-6)).clamp_(max=1.0)
    return u, norm


def reference_ascend(w: Tensor, g: Tensor, saved: Tensor, rho: float, epsilon: float) -> None:
    check_ascent(w, g, saved, rho, epsilon)
    saved.copy_(w)
    w.addcdiv_(g, torch.linalg.vector_norm(g, dim=-1, keepdim=True) + epsilon, value=rho)


def column(number: float | Tensor, w: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """[1], or [K, 1] for one number a client; of the dtype of w, unless told."""
    dtype = dtype or w.dtype
    return number.to(dtype).unsqueeze(-1) if isinstance(number, Tensor) else w.new_full((1,), number, dtype=dtype)

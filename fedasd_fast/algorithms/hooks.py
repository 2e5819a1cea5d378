"""Which hooks a method overrides: executors ask before they call one, so that the others cost nothing.

`correction`, `finish`, `weights`, `combine` and `distillation` are not listed: every executor runs them for every
method.
"""

from __future__ import annotations

from .base import Method

# Hooks that change the arithmetic of a local step; the others are asked before or after a client's steps.
STEP_HOOKS = frozenset({"gradient_factor", "perturbation", "ascent_loss", "logits", "local_loss"})
HOOKS = STEP_HOOKS | {"start", "teacher", "contribution"}


def hooks_used(method: Method) -> frozenset[str]:
    """Those that the method defines beyond a, v, decay, rho and the distillation term; FedAvg has none."""
    return frozenset(name for name in HOOKS if getattr(type(method), name) is not getattr(Method, name))


def why_not_stacked(method: Method) -> str | None:
    """Why clients of this method cannot be trained at once, or None if they can."""
    if "local_loss" in hooks_used(method):
        return f"the local_loss of {type(method).__name__} needs an autograd graph for each client"
    return None

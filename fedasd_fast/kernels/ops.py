"""Fake kernels and vmap rules of the compiled ops (torch.ops.fedasd.*).

Schemas, kernels and derivatives are registered in csrc/torch.  Here: shapes for fake tensors, so that torch.compile and
export see through the ops, and vmap, which maps a batch of clients onto the kernels' own client dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .checks import check_cache, check_finite, check_inputs, check_normalizer, check_options, check_teacher
from .update_checks import check_accumulation, check_ascent, check_step

TENSORS = 9  # the objective ops' leading arguments, see csrc/torch/ops.h


def _check_objective(
    student: Tensor, teacher: Tensor | None, targets: Tensor, prior: Tensor | None, *rest: Any
) -> None:
    """rest: see FEDASD_OBJECTIVE_SCHEMA in csrc/torch/ops.h."""
    rows, normalizer = rest[0], rest[4]
    asd_weight, ce_weight, options, weighting = rest[6], rest[7], rest[8:14], rest[12]
    check_finite(asd_weight, "asd_weight")
    check_finite(ce_weight, "ce_weight")
    check_options(*options)
    check_inputs(student, teacher, rows, targets, prior, weighting, asd_weight)
    check_cache(rows, rest[1:4])
    if normalizer is not None:
        check_normalizer(normalizer, student)


def _loss_like(student: Tensor) -> Tensor:
    dtype = torch.float64 if student.dtype == torch.float64 else torch.float32
    return student.new_empty(student.shape[:-2], dtype=dtype)


def _fake_objective(*args: Any) -> Tensor:
    _check_objective(*args)
    return _loss_like(args[0])


def _fake_loss_and_grad(*args: Any) -> tuple[Tensor, Tensor]:
    _check_objective(*args)
    return _loss_like(args[0]), torch.empty_like(args[0], memory_format=torch.contiguous_format)


def _fake_cache(logits: Tensor, targets: Tensor, label_prior: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    check_options(*rest[:4])
    check_teacher(logits, targets, label_prior)
    numbers = logits.new_empty(targets.shape, dtype=torch.float64)
    return logits.new_empty(logits.shape, dtype=rest[6]), numbers, torch.empty_like(numbers)


def _fake_local_step(
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


def _fake_ascend(w: Tensor, g: Tensor, saved: Tensor, rho: float, epsilon: float) -> None:
    check_ascent(w, g, saved, rho, epsilon)


def _fake_accumulate(total: Tensor, values: Tensor, weights: Sequence[float]) -> None:
    check_accumulation(total, values, weights)


def _fake_train_clients(
    start: Tensor, inputs: Tensor, targets: Tensor, sizes: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    """rest: see FEDASD_TRAIN_SCHEMA in csrc/torch/chain.h."""
    clients, steps = sizes.shape[0], rest[6]
    norms = start.new_empty(clients, steps, dtype=torch.float64)
    return start.new_empty(clients, start.shape[0]), start.new_empty(clients, steps), norms, norms.new_empty(clients)


def vmap_rule(op: Callable[..., Any], tensors: int) -> Callable[..., Any]:
    def rule(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
        """[V, ..] of every tensor; a client dimension below it is folded in, [V, K, ..] -> [V K, ..]."""
        size = info.batch_size
        batched = []
        for arg, dim in zip(args[:tensors], in_dims, strict=False):
            if arg is not None:
                arg = arg.expand(size, *arg.shape) if dim is None else arg.movedim(dim, 0)
            batched.append(arg)
        nested = batched[0].dim() == 4
        if nested:
            batched = [None if t is None else t.flatten(0, 1) for t in batched]
        outputs = op(*batched, *args[tensors:])
        single = isinstance(outputs, Tensor)
        unfolded = tuple(t.unflatten(0, (size, -1)) if nested else t for t in ((outputs,) if single else outputs))
        return (unfolded[0], 0) if single else (unfolded, (0,) * len(unfolded))

    return rule


def register() -> None:
    """Called once, after the extension is loaded."""
    losses = {
        "asd_objective": (_fake_objective, TENSORS),
        "asd_loss_and_grad": (_fake_loss_and_grad, TENSORS),
        "teacher_cache": (_fake_cache, 3),
    }
    for name, (fake, tensors) in losses.items():
        torch.library.register_fake(f"fedasd::{name}", fake)
        torch.library.register_vmap(f"fedasd::{name}", vmap_rule(getattr(torch.ops.fedasd, name), tensors))
    torch.library.register_fake("fedasd::train_clients", _fake_train_clients)
    # The ops of the client update return nothing: all there is to trace are their checks.
    updates: dict[str, Callable[..., None]] = {
        "local_step_": _fake_local_step,
        "ascend_": _fake_ascend,
        "accumulate_": _fake_accumulate,
    }
    for name, check in updates.items():
        torch.library.register_fake(f"fedasd::{name}", check)

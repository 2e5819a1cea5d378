"""Argument checks of the client update; csrc/torch/update.cpp has the same for the compiled ops."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .checks import require


def check_step(
    w: Tensor,
    g: Tensor,
    lr: float | Tensor,
    quadratic: float,
    linear: Tensor | None,
    clip_norm: float | None,
    decay: float | Tensor,
    velocity: Tensor | None,
    momentum: float,
    norms: Tensor | None,
    *,
    values: bool = True,
) -> None:
    """`values`: whether the tensors have values; those of a tracer have none."""
    _check_flat(w, "w")
    _check_array(g, w, "g")
    if velocity is not None:
        _check_array(velocity, w, "velocity")
    advice = "pass zeros like w, and keep them for the next step"
    require(velocity is not None or momentum == 0, f"momentum = {momentum} without a velocity; {advice}")
    if linear is not None:
        shape, expected = list(linear.shape), f"the shape of w {list(w.shape)}, or [P] for all clients"
        require(linear.shape in (w.shape, w.shape[-1:]), f"linear has shape {shape}; expected {expected}")
        _check_like(linear, w, "linear")
    if isinstance(decay, Tensor):
        _check_numbers(decay, w, "decay")
        if values:
            _check_values(decay, "decay", -math.inf, "expected a finite number")
    else:
        _check_finite(decay, "decay")
    if isinstance(lr, Tensor):
        _check_numbers(lr, w, "lr")
        if values:
            _check_values(lr, "lr", 0.0, "expected a positive number, or 0 for a client that has finished")
    else:
        _check_not_negative(lr, "lr")
    if norms is not None:
        _check_numbers(norms, w, "norms")
    _check_finite(quadratic, "quadratic")
    _check_not_negative(momentum, "momentum")
    positive = clip_norm is None or (clip_norm > 0 and math.isfinite(clip_norm))
    require(positive, f"clip_norm = {clip_norm}; expected a positive finite number, or None")


def check_ascent(w: Tensor, g: Tensor, saved: Tensor, rho: float, epsilon: float) -> None:
    _check_flat(w, "w")
    _check_array(g, w, "g")
    _check_array(saved, w, "saved")
    _check_finite(rho, "rho")
    _check_not_negative(epsilon, "epsilon")


def check_accumulation(total: Tensor, values: Tensor, weights: Sequence[float]) -> None:
    _check_flat(values, "values")
    require(total.dtype == torch.int64, f"total has dtype {total.dtype}; expected int64, as fixed_point.zeros gives")
    _check_shape(total, values.shape[-1:], "total", "[P]")
    _check_device(total, values, "total", "values")
    clients = values.shape[0] if values.dim() == 2 else 1
    require(len(weights) == clients, f"{len(weights)} weights for {clients} clients; expected one a client")
    for weight in weights:
        _check_finite(weight, "weight")


def _check_flat(t: Tensor, name: str) -> None:
    require(t.dtype in (torch.float32, torch.float64), f"{name} has dtype {t.dtype}; expected float32 or float64")
    shape = list(t.shape)
    require(t.dim() in (1, 2), f"{name} has shape {shape}; expected [P], or [K, P] with a client dimension")


def _check_array(t: Tensor, w: Tensor, name: str) -> None:
    _check_shape(t, w.shape, name, "the shape of w")
    _check_like(t, w, name)


def _check_like(t: Tensor, w: Tensor, name: str) -> None:
    require(t.dtype == w.dtype, f"{name} has dtype {t.dtype} but w has {w.dtype}; convert one of them")
    _check_device(t, w, name, "w")


def _check_numbers(t: Tensor, w: Tensor, name: str) -> None:
    require(t.dtype == torch.float64, f"{name} has dtype {t.dtype}; expected float64: call .double()")
    _check_shape(t, w.shape[:-1], name, "one number a client")
    _check_device(t, w, name, "w")


def _check_values(t: Tensor, name: str, lowest: float, expected: str) -> None:
    """On the CPU only: reading values from a GPU would wait for it."""
    if t.device.type == "cpu":
        for k, x in enumerate(t.reshape(-1).tolist()):
            require(math.isfinite(x) and x >= lowest, f"{name}[{k}] = {x}; {expected}")


def _check_shape(t: Tensor, shape: Sequence[int], name: str, meaning: str) -> None:
    found, expected = list(t.shape), list(shape)
    require(found == expected, f"{name} has shape {found}; expected {expected} ({meaning})")


def _check_device(t: Tensor, other: Tensor, name: str, other_name: str) -> None:
    found = f"{name} is on {t.device} but {other_name} is on {other.device}"
    require(t.device == other.device, f"{found}; move both to one device")


def _check_finite(x: float, name: str) -> None:
    require(math.isfinite(x), f"{name} = {x}; expected a finite number")


def _check_not_negative(x: float, name: str) -> None:
    require(math.isfinite(x) and x >= 0, f"{name} = {x}; expected a finite number of 0 or more")

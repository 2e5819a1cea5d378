"""The local step on flat vectors, against torch.optim and against arithmetic in one's head."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedasd_fast.algorithms import Correction
from fedasd_fast.settings import Optimizer
from fedasd_fast.simulation.client import fused_update

numbers = st.floats(-3, 3, allow_subnormal=False)
vectors = st.lists(numbers, min_size=4, max_size=4).map(lambda x: torch.tensor(x, dtype=torch.float64))


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@settings(max_examples=60, deadline=None)
@given(
    start=vectors,
    gradients=st.lists(vectors, min_size=3, max_size=3),
    lr=st.floats(1e-3, 1),
    decay=st.floats(0, 0.5),
    momentum=st.sampled_from([0.0, 0.5, 0.9]),
    clip=st.none() | st.floats(0.01, 10),
)
def test_is_sgd_after_clip_grad_norm(
    start: Tensor, gradients: list[Tensor], lr: float, decay: float, momentum: float, clip: float | None
) -> None:
    theirs = torch.nn.Parameter(start.clone())
    sgd = torch.optim.SGD([theirs], lr=lr, weight_decay=decay, momentum=momentum)
    ours, velocity = start.clone(), torch.zeros_like(start) if momentum else None
    for g in gradients:
        theirs.grad = g.clone()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_([theirs], clip)
        sgd.step()
        optimizer = Optimizer(weight_decay=decay, momentum=momentum, clip_norm=clip)
        fused_update.step(ours, g.clone(), velocity, Correction(), optimizer, lr)
    torch.testing.assert_close(ours, theirs.data, rtol=1e-13, atol=1e-13)


def test_clipping_comes_before_weight_decay() -> None:
    w, g = vector(10.0, 0.0), vector(3.0, 4.0)  # norm 5, clipped to 1: (0.6, 0.8)
    fused_update.step(w, g, None, Correction(), Optimizer(weight_decay=0.5, clip_norm=1.0), lr=1.0)
    # Decay first would have clipped (8, 4) to (0.89, 0.45).
    torch.testing.assert_close(w, vector(10 - 0.6 - 5.0, -0.8), rtol=0, atol=1e-6)


def test_the_correction_is_clipped_but_its_decay_is_not() -> None:
    w, g = vector(2.0, 0.0), vector(0.0, 0.0)
    correction = Correction(quadratic=1.5, linear=vector(0.0, 4.0), decay=0.25)  # (3, 4), clipped to (0.6, 0.8)
    fused_update.step(w, g, None, correction, Optimizer(weight_decay=0.25, clip_norm=1.0), lr=1.0)
    torch.testing.assert_close(w, vector(2 - 0.6 - 0.5 * 2, -0.8), rtol=0, atol=1e-6)


def test_a_gradient_within_the_norm_is_left_alone() -> None:
    w, g = vector(0.0, 0.0), vector(3.0, 4.0)
    fused_update.step(w, g, None, Correction(), Optimizer(weight_decay=0.0, clip_norm=5.1), lr=1.0)
    assert w.tolist() == [-3.0, -4.0]


@pytest.mark.parametrize("epsilon", [1e-16, 0.5])
def test_ascent_has_length_rho(epsilon: float) -> None:
    w, g = vector(1.0, 1.0), vector(0.3, 0.4)  # norm 0.5
    fused_update.ascend(w, g, Correction(rho=2.0, rho_epsilon=epsilon))
    length = 2.0 * 0.5 / (0.5 + epsilon)
    torch.testing.assert_close(w, vector(1 + 0.6 * length, 1 + 0.8 * length), rtol=0, atol=1e-15)
    assert g.tolist() == [0.3, 0.4]


def test_no_gradient_no_ascent() -> None:
    w = vector(1.0, 2.0)
    fused_update.ascend(w, vector(0.0, 0.0), Correction(rho=0.1))
    assert w.tolist() == [1.0, 2.0]
    assert not math.isnan(w.sum())

"""MOON against its arithmetic written out by hand, for a network of two layers: its features need a hidden one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import Config
from fedasd_fast.simulation import sampling

from ..orders import epoch_order
from .numpy_reference import asd_weights, softmax
from .problem import CLASSES, FEATURES, Clients, advance, prepare, settings, skewed
from .test_methods import EXACT, OPTIMIZERS

HIDDEN = 5
Array = np.ndarray


def network() -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES)).double()
    random = torch.Generator().manual_seed(3)
    for p in module.parameters():
        p.data = torch.randn(p.shape, generator=random, dtype=torch.float64) * 0.5
    return module


def forward(w: Array, x: Array) -> tuple[Array, Array, Array]:
    """Features [B, H], logits [B, C], and the last layer's weight [C, H]."""
    a, b, c = HIDDEN * FEATURES, HIDDEN * FEATURES + HIDDEN, HIDDEN * FEATURES + HIDDEN + CLASSES * HIDDEN
    features = np.tanh(x @ w[:a].reshape(HIDDEN, FEATURES).T + w[a:b])
    last = w[b:c].reshape(CLASSES, HIDDEN)
    return features, features @ last.T + w[c:], last


def gradient(w: Array, x: Array, y: Array, near: Array, far: Array, term: Any, mu: float, tau: float) -> Array:
    """near, far: the features of the global and of the previous model; term: teacher's logits, alpha, weight."""
    features, logits, last = forward(w, x)
    by_logits = np.array([(softmax(z) - np.eye(CLASSES)[c]) / len(y) for z, c in zip(logits, y, strict=True)])
    if term is not None:
        teacher, alpha, weight = term
        for i in range(len(y)):
            by_logits[i] += weight * alpha[i] * (softmax(logits[i] / 2) - softmax(teacher[i] / 2)) / 2
    by_features = by_logits @ last
    for i, z in enumerate(features):
        cosines, slopes = [], []
        for u in (near[i], far[i]):
            cosine = z @ u / np.sqrt((z @ z) * (u @ u))
            cosines.append(cosine)
            slopes.append(u / np.sqrt((z @ z) * (u @ u)) - cosine * z / (z @ z))
        p = softmax(np.array(cosines) / tau)
        by_features[i] += mu / (tau * len(y)) * ((p[0] - 1) * slopes[0] + p[1] * slopes[1])
    inner = by_features * (1 - features**2)
    parts = [inner.T @ x, inner.sum(0), by_logits.T @ features, by_logits.sum(0)]
    return np.concatenate([part.ravel() for part in parts])


def rounds_by_hand(config: Config, data: Clients, w0: Array) -> Array:
    arguments, optimizer = {"mu": 1.0, "tau": 0.5} | config.method_args, config.optimizer
    previous, cloud = dict.fromkeys(range(data.num_clients), w0), w0
    for t in range(config.rounds):
        lr, ends, sizes = optimizer.lr * optimizer.lr_decay_per_round**t, [], []
        for k in sampling.participants(config, t):
            x, y = data.client(k).inputs.numpy(), data.client(k).targets.numpy()
            w, velocity = cloud, np.zeros_like(w0)
            for epoch in range(config.local_epochs):
                permutation = epoch_order(config.seed, t, k, len(y), epoch)
                for first in range(0, len(y), config.batch_size):
                    rows = permutation[first : first + config.batch_size]
                    near, teacher, _ = forward(cloud, x[rows])
                    term = None
                    if config.method.endswith("+asd"):
                        shares = np.bincount(y, minlength=CLASSES) / len(y)
                        term = teacher, asd_weights(teacher, y[rows], shares, True), config.asd.weight
                    g = gradient(w, x[rows], y[rows], near, forward(previous[k], x[rows])[0], term, **arguments)
                    norm = np.sqrt((g * g).sum())
                    if optimizer.clip_norm is not None and norm > optimizer.clip_norm:
                        g = g * (optimizer.clip_norm / (norm + 1e-6))
                    velocity = optimizer.momentum * velocity + g + optimizer.weight_decay * w
                    w = w - lr * velocity
            previous[k] = w
            ends.append(w)
            sizes.append(len(y))
        cloud = np.array(sizes) @ np.array(ends) / sum(sizes)
    return cloud


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("asd", ["", "+asd"])
@pytest.mark.parametrize("arguments", [{}, {"mu": 3.0, "tau": 0.2}], ids=str)
@pytest.mark.parametrize("rounds", [1, 3])
def test_rounds_by_hand(rounds: int, arguments: dict[str, float], asd: str, optimizer: str) -> None:
    changes: dict[str, Any] = OPTIMIZERS[optimizer]
    config = settings(method="moon" + asd, method_args=arguments, optimizer=changes, rounds=rounds)
    context = prepare(config, skewed(), network())
    expected = rounds_by_hand(config, skewed(), context.initial.numpy().copy())
    np.testing.assert_allclose(advance(context)[0].cloud, expected, rtol=0, atol=EXACT)


def test_the_term_matters() -> None:
    with_term, without = (
        advance(prepare(settings(method="moon", method_args={"mu": mu}), skewed(), network()))[0].cloud
        for mu in (1.0, 0.0)
    )
    assert (with_term - without).abs().max() > 1e-4


def test_nothing_is_left_on_the_network() -> None:
    context = prepare(settings(method="moon", rounds=1), skewed(), network())
    advance(context)
    assert not any(layer._forward_pre_hooks for layer in context.trainer.model.module.modules())


def test_without_its_term_it_is_fedavg() -> None:
    moon, plain = (
        advance(prepare(settings(method=method, method_args=arguments), skewed(), network()))[0].cloud
        for method, arguments in (("moon", {"mu": 0.0}), ("fedavg", {}))
    )
    torch.testing.assert_close(moon, plain, rtol=0, atol=EXACT)


def test_a_network_without_a_linear_layer_is_refused() -> None:
    module = nn.Sequential(nn.Conv2d(1, CLASSES, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(ConfigError, match=r"MOON has a local_loss.*Sequential has no nn.Linear"):
        prepare(settings(method="moon"), skewed(shape=(1, 3, 3)), module)

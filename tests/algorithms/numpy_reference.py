"""Every method in numpy, for softmax regression, written from the formulas of the papers.

Of the package only the settings, the order of samples and the choice of participants are used; no formula, no autograd.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedasd_fast.config import Config
from fedasd_fast.simulation import sampling

from ..orders import epoch_order
from .problem import CLASSES, FEATURES, Clients

Array = np.ndarray
DEFAULTS: dict[str, dict[str, Any]] = {
    "fedprox": {"mu": 1e-4},
    "feddyn": {"alpha": 0.01},
    "fedspeed": {"alpha": 0.01, "rho": 0.1, "variant": "official"},
    "fedsam": {"rho": 0.05},
    "feddisco": {"variant": "official"},
    "fedntd": {"variant": "paper", "beta": None, "temperature": None},
}


def softmax(z: Array) -> Array:
    e = np.exp(z - z.max())
    return e / e.sum()


def asd_weights(teacher: Array, y: Array, shares: Array, adaptive: bool) -> Array:
    """alpha_i: exp(-H(softmax(t_i))) / p[y_i], normalised over the batch."""
    raw = np.ones(len(y))
    if adaptive:
        for i, label in enumerate(y):
            p = softmax(teacher[i])
            raw[i] = np.exp((p * np.log(p)).sum()) / shares[label]
    return raw / raw.sum()


def loss_gradient(w: Array, x: Array, y: Array, teacher: Array, shares: Array, term: dict[str, Any] | None) -> Array:
    """Of mean cross-entropy + weight * sum_i alpha_i KL(s_i || q_i), with respect to the flat parameters."""
    logits = affine(w, x)
    by_logits = np.zeros_like(logits)
    for i, label in enumerate(y):
        by_logits[i] = softmax(logits[i]) / len(y)
        by_logits[i, label] -= 1 / len(y)
    if term is not None:
        alpha, tau = asd_weights(teacher, y, shares, term["adaptive"]), term["tau"]
        for i, label in enumerate(y):
            kept = [c for c in range(CLASSES) if not (term["not_true"] and c == label)]
            s, q = softmax(teacher[i, kept] / tau), softmax(logits[i, kept] / tau)
            by_logits[i, kept] += term["weight"] * alpha[i] * (q - s) / tau
    return np.concatenate([(by_logits.T @ x).ravel(), by_logits.sum(0)])


def affine(w: Array, x: Array) -> Array:
    return x @ w[: CLASSES * FEATURES].reshape(CLASSES, FEATURES).T + w[CLASSES * FEATURES :]


def distillation(config: Config, arguments: dict[str, Any]) -> dict[str, Any] | None:
    enabled = config.method.endswith("+asd")
    if config.base_method != "fedntd":
        return dict(weight=config.asd.weight, tau=2.0, adaptive=True, not_true=False) if enabled else None
    if arguments["variant"] == "paper":
        return dict(weight=config.asd.weight, tau=2.0, adaptive=enabled, not_true=True)
    tau, beta = arguments["temperature"] or 1.0, 1.0 if arguments["beta"] is None else arguments["beta"]
    return dict(weight=beta * tau * tau, tau=tau, adaptive=enabled, not_true=True)


def disco_weights(counts: Array, members: Array, variant: str) -> Array:
    """counts [K, C] of labels."""
    a, b, among = (0.5, 0.1, members) if variant == "official" else (0.1, 0.5, np.arange(len(counts)))
    size, far = {}, {}
    for k in among:
        p = counts[k] / counts[k].sum()
        size[k] = counts[k].sum()
        far[k] = sum(share * np.log(share * CLASSES) for share in p if share > 0)
    total_size, total_far = sum(size.values()), sum(far.values())
    return np.array([max(0.0, size[k] / total_size - a * far[k] / total_far + b) for k in members])


@dataclass
class Result:
    cloud: Array
    sel: Array
    all: Array
    h: Array  # [K, P] of FedDyn and FedSpeed
    c: Array  # [K, P] of SCAFFOLD
    uploads: Array  # [K, P]
    clipped: list[bool] = field(default_factory=list)  # whether clipping did anything, step by step


def simulate(config: Config, data: Clients, start: Array) -> Result:
    name, optimizer = config.base_method, config.optimizer
    arguments = DEFAULTS.get(name, {}) | config.method_args
    term = distillation(config, arguments)
    clients = range(data.num_clients)
    xs = [data.client(k).inputs.numpy() for k in clients]
    ys = [data.client(k).targets.numpy() for k in clients]
    counts = np.array([np.bincount(y, minlength=CLASSES) for y in ys])
    sizes = counts.sum(1)
    h, c_k, c_server = np.zeros((len(sizes), len(start))), np.zeros((len(sizes), len(start))), np.zeros(len(start))
    uploads = np.tile(start, (len(sizes), 1))
    cloud, sel, clipped = start, start, []

    def clip(g: Array) -> Array:
        norm = np.sqrt((g * g).sum())
        clipped.append(optimizer.clip_norm is not None and norm > optimizer.clip_norm)
        return g * (optimizer.clip_norm / (norm + 1e-6)) if clipped[-1] else g

    def direction(w: Array, k: int, gradient: Callable[[Array], Array]) -> Array:
        """What the learning rate multiplies; w_t is `cloud`."""
        decay = optimizer.weight_decay
        if name == "fedprox":
            return clip(gradient(w) + arguments["mu"] * (w - cloud)) + decay * w
        if name == "fedsam":
            g = gradient(w)
            return clip(gradient(w + arguments["rho"] * g / (np.sqrt((g * g).sum()) + 1e-16))) + decay * w
        if name in ("feddyn", "fedspeed"):
            alpha = arguments["alpha"] / (sizes[k] / sizes.mean())
            g = gradient(w)
            if name == "fedspeed" and arguments["variant"] == "official":
                g = gradient(w + arguments["rho"] * g / (np.sqrt((g * g).sum()) + 1e-7))
            return clip(g + alpha * (h[k] - cloud)) + (decay + alpha) * w
        if name == "scaffold":
            return clip(gradient(w) + c_server - c_k[k]) + decay * w
        return clip(gradient(w)) + decay * w

    for t in range(config.rounds):
        lr = optimizer.lr * optimizer.lr_decay_per_round**t
        members = sampling.participants(config, t)
        ends = []
        for k in members:
            w, velocity, steps = cloud.copy(), np.zeros(len(start)), 0
            teacher = affine(cloud, xs[k])
            for epoch in range(config.local_epochs):
                permutation = epoch_order(config.seed, t, k, sizes[k], epoch)
                for first in range(0, sizes[k], config.batch_size):
                    rows = permutation[first : first + config.batch_size]

                    def gradient(at: Array, k: int = k, rows: Array = rows, teacher: Array = teacher) -> Array:
                        shares = counts[k] / sizes[k]
                        return loss_gradient(at, xs[k][rows], ys[k][rows], teacher[rows], shares, term)

                    velocity = optimizer.momentum * velocity + direction(w, k, gradient)
                    w = w - lr * velocity
                    steps += 1
            ends.append((k, w, steps))

        old_c = c_server.copy()
        for k, w, steps in ends:
            uploads[k] = w
            h[k] += w - cloud
            change = -old_c + (cloud - w) / (steps * lr)
            c_k[k] += change
            c_server += change / len(sizes)
        models = np.array([w for _, w, _ in ends])
        if name in ("feddyn", "fedspeed", "scaffold"):
            weights = np.ones(len(members))
        elif name == "feddisco":
            weights = disco_weights(counts, members, arguments["variant"])
        else:
            weights = sizes[members]
        sel = (weights[:, None] * models).sum(0) / weights.sum()
        cloud = sel + h.mean(0) if name in ("feddyn", "fedspeed") else sel

    alike = name in ("feddyn", "fedspeed", "scaffold")
    everyone = uploads.mean(0) if alike else (sizes[:, None] * uploads).sum(0) / sizes.sum()
    return Result(cloud, sel, everyone, h, c_k, uploads, clipped)

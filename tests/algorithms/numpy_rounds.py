"""Rounds of local SGD in numpy, for softmax regression, around the rule of a baseline (numpy_baselines.py).

Of the package only the settings, the order of samples and the choice of participants are used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedasd_fast.config import Config
from fedasd_fast.simulation import sampling

from ..orders import epoch_order
from .numpy_baselines import RULES, Rule
from .numpy_reference import affine, asd_weights, softmax
from .problem import CLASSES, Clients

Array = np.ndarray


def flat(by_logits: Array, x: Array) -> Array:
    return np.concatenate([(by_logits.T @ x).ravel(), by_logits.sum(0)])


def cross_entropy_gradient(w: Array, x: Array, y: Array, scale: Array, shift: Array) -> Array:
    logits = affine(w, x) * scale + shift
    return flat(
        np.array([(softmax(z) - np.eye(CLASSES)[c]) / len(y) for z, c in zip(logits, y, strict=True)]) * scale, x
    )


def distillation_gradient(w: Array, x: Array, teacher: Array, alpha: Array, tau: float) -> Array:
    """Of sum_i alpha_i KL(s_i || q_i)."""
    logits = affine(w, x)
    rows = [a * (softmax(z / tau) - softmax(t / tau)) / tau for a, z, t in zip(alpha, logits, teacher, strict=True)]
    return flat(np.array(rows), x)


@dataclass
class Result:
    cloud: Array
    all: Array
    rule: Rule
    clipped: list[bool]  # step by step


def simulate(config: Config, data: Clients, w0: Array) -> Result:
    optimizer, clients = config.optimizer, range(data.num_clients)
    xs = [data.client(k).inputs.numpy() for k in clients]
    ys = [data.client(k).targets.numpy() for k in clients]
    counts = np.array([np.bincount(y, minlength=CLASSES) for y in ys])
    sizes = counts.sum(1)
    rule = RULES[config.base_method](config.method_args, len(sizes), w0, optimizer.momentum)
    asd = dict(weight=config.asd.weight, tau=2.0, adaptive=True)
    term = asd if config.method.endswith("+asd") else rule.term()
    uploads, cloud, clipped = np.tile(w0, (len(sizes), 1)), w0, []

    def clip(g: Array) -> Array:
        norm = np.sqrt((g * g).sum())
        clipped.append(optimizer.clip_norm is not None and norm > optimizer.clip_norm)
        return g * (optimizer.clip_norm / (norm + 1e-6)) if clipped[-1] else g

    for t in range(config.rounds):
        lr = optimizer.lr * optimizer.lr_decay_per_round**t
        members = sampling.participants(config, t)
        ends, sent, steps = [], [], []
        for k in members:
            teacher = rule.teacher(cloud)
            w, velocity, count = rule.start(k, cloud), np.zeros(len(w0)), 0
            taught = None if teacher is None else affine(teacher, xs[k])
            for epoch in range(config.local_epochs):
                permutation = epoch_order(config.seed, t, k, sizes[k], epoch)
                for first in range(0, sizes[k], config.batch_size):
                    rows = permutation[first : first + config.batch_size]

                    def gradient(at: Array, k: int = k, rows: Array = rows, taught: Array | None = taught) -> Array:
                        g = cross_entropy_gradient(at, xs[k][rows], ys[k][rows], *rule.change(counts[k]))
                        if term is None or taught is None:
                            return g
                        alpha = asd_weights(taught[rows], ys[k][rows], counts[k] / sizes[k], term["adaptive"])
                        more = distillation_gradient(at, xs[k][rows], taught[rows], alpha, term["tau"])
                        return g + term["weight"] * more

                    def kd(at: Array, tau: float, x: Array = xs[k][rows], w_t: Array = cloud) -> Array:
                        return distillation_gradient(at, x, affine(w_t, x), np.full(len(x), 1 / len(x)), tau)

                    decay = optimizer.weight_decay + rule.decay(sizes[k] / sizes.mean())
                    d = clip(rule.direction(k, w, cloud, gradient, kd)) + decay * w
                    velocity = optimizer.momentum * velocity + d
                    w = w - lr * velocity
                    count += 1
            ends.append(w)
            steps.append(count)
            sent.append(rule.finish(k, cloud, w, count, lr))
            uploads[k] = w
        p = sizes[members] / sizes[members].sum() if rule.weighted else np.full(len(members), 1 / len(members))
        cloud = rule.server(cloud, members, np.array(ends), np.array(sent), p, np.array(steps))
    everyone = sizes @ uploads / sizes.sum() if rule.weighted else uploads.mean(0)
    return Result(cloud, everyone, rule, clipped)

"""The baselines' own arithmetic in numpy, written from the formulas of their papers and of their authors' code.

A rule says what a method does in a step, after a client's training, and on the server; numpy_rounds.py is the local SGD
around it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .problem import CLASSES

Array = np.ndarray
Gradient = Callable[[Array], Array]


class Rule:
    """FedAvg."""

    weighted = True

    def __init__(self, arguments: dict[str, Any], clients: int, w0: Array, momentum: float) -> None:
        self.a, self.w0, self.momentum = arguments, w0, momentum
        self.states = {name: np.zeros((clients, len(w0))) for name in ("h", "c", "mu", "last", "received")}
        self.vectors = {
            name: np.zeros(len(w0)) for name in ("h", "c", "s", "direction", "velocity", "first", "average")
        }
        self.begin()

    def begin(self) -> None: ...

    def start(self, k: int, w_t: Array) -> Array:
        return w_t

    def teacher(self, w_t: Array) -> Array | None:
        return w_t

    def term(self) -> dict[str, Any] | None:
        """The method's own distillation term."""
        return None

    def change(self, counts: Array) -> tuple[Array, Array]:
        return np.ones(CLASSES), np.zeros(CLASSES)

    def direction(self, k: int, w: Array, w_t: Array, gradient: Gradient, kd: Callable[[Array, float], Array]) -> Array:
        """What is clipped."""
        return gradient(w)

    def decay(self, relative: float) -> float:
        return 0.0

    def finish(self, k: int, w_t: Array, end: Array, steps: int, lr: float) -> Array:
        """Returns what the client sends."""
        return end

    def server(self, w_t: Array, members: Array, ends: Array, sent: Array, p: Array, steps: Array) -> Array:
        """The next model; p are the weights, which sum to 1."""
        return p @ sent


class FedAvgM(Rule):
    def server(self, w_t: Array, members: Array, ends: Array, sent: Array, p: Array, steps: Array) -> Array:
        self.vectors["velocity"] = self.a.get("beta", 0.9) * self.vectors["velocity"] + (p @ sent - w_t)
        return w_t + self.a.get("lr", 1.0) * self.vectors["velocity"]


class FedAdam(Rule):
    def begin(self) -> None:
        self.tau = self.a.get("tau", 1e-3)
        self.v = np.full(len(self.w0), self.tau**2)

    def second(self, square: Array) -> Array:
        return self.a.get("beta2", 0.99) * self.v + (1 - self.a.get("beta2", 0.99)) * square

    def server(self, w_t: Array, members: Array, ends: Array, sent: Array, p: Array, steps: Array) -> Array:
        delta, beta = p @ sent - w_t, self.a.get("beta1", 0.9)
        self.vectors["first"] = beta * self.vectors["first"] + (1 - beta) * delta
        self.v = self.second(delta**2)
        return w_t + self.a.get("lr", 0.01) * self.vectors["first"] / (np.sqrt(self.v) + self.tau)


class FedYogi(FedAdam):
    def second(self, square: Array) -> Array:
        return self.v - (1 - self.a.get("beta2", 0.99)) * square * np.sign(self.v - square)


class FedNova(Rule):
    def server(self, w_t: Array, members: Array, ends: Array, sent: Array, p: Array, steps: Array) -> Array:
        effective = []
        for count in steps:  # the authors' counters
            counter = total = 0.0
            for _ in range(count):
                counter = counter * self.momentum + 1
                total += counter
            effective.append(total)
        scale = p @ np.array(effective)
        return w_t + sum(w * scale / a * (end - w_t) for w, a, end in zip(p, effective, ends, strict=True))


class FedExP(Rule):
    def server(self, w_t: Array, members: Array, ends: Array, sent: Array, p: Array, steps: Array) -> Array:
        delta = p @ ends - w_t
        lengths = ((ends - w_t) ** 2).sum(1)
        return w_t + max(1.0, p @ lengths / (2 * ((delta**2).sum() + self.a.get("epsilon", 1e-3)))) * delta


class FedCM(Rule):
    weighted = False

    def begin(self) -> None:
        self.alpha = self.a.get("alpha", 0.1)
        self.seen: list[Array] = []

    def direction(self, k: int, w: Array, w_t: Array, gradient: Gradient, kd: Any) -> Array:
        return self.alpha * gradient(w) + (1 - self.alpha) * self.vectors["direction"]

    def finish(self, k: int, w_t: Array, end: Array, steps: int, lr: float) -> Array:
        self.seen.append((w_t - end) / (steps * lr))
        return end

    def server(self, w_t: Array, members: Array, ends: Array, sent: Array, p: Array, steps: Array) -> Array:
        self.vectors["direction"] = np.mean(self.seen, 0)
        self.seen = []
        return ends.mean(0)


class FedInit(Rule):
    weighted = False

    def begin(self) -> None:
        self.ended = np.tile(self.w0, (len(self.states["last"]), 1))

    def start(self, k: int, w_t: Array) -> Array:
        self.began = w_t + self.a.get("beta", 0.1) * (w_t - self.ended[k])
        return self.began

    def finish(self, k: int, w_t: Array, end: Array, steps: int, lr: float) -> Array:
        self.ended[k] = end
        self.states["last"][k] = end - self.w0
        return w_t + (end - self.began)


class FedGKD(Rule):
    def begin(self) -> None:
        self.past: list[Array] = []

    def term(self) -> dict[str, Any]:
        tau = self.a.get("temperature", 1.0)
        return dict(weight=self.a.get("coefficient", 0.1) * tau**2, tau=tau, adaptive=False)

    def teacher(self, w_t: Array) -> Array | None:
        return np.mean(self.past[-self.a.get("models", 5) :], 0) if self.past else None

    def server(self, w_t: Array, members: Array, ends: Array, sent: Array, p: Array, steps: Array) -> Array:
        self.past.append(p @ ends)
        return self.past[-1]


class WithDrift(Rule):
    """h_k += w_k - w_t, and the server adds the mean of h over all clients."""

    def finish(self, k: int, w_t: Array, end: Array, steps: int, lr: float) -> Array:
        self.states["h"][k] += end - w_t
        return end

    def server(self, w_t: Array, members: Array, ends: Array, sent: Array, p: Array, steps: Array) -> Array:
        return p @ ends + self.states["h"].mean(0)


class FedGMT(WithDrift):
    def begin(self) -> None:
        self.average = self.w0

    def term(self) -> dict[str, Any]:
        tau = self.a.get("tau", 3.0)
        return dict(weight=self.a.get("gamma", 1.0) * tau**2, tau=tau, adaptive=False)

    def teacher(self, w_t: Array) -> Array | None:
        return self.average

    def direction(self, k: int, w: Array, w_t: Array, gradient: Gradient, kd: Any) -> Array:
        return gradient(w) + self.states["h"][k] / self.a.get("beta", 10.0)

    def server(self, w_t: Array, members: Array, ends: Array, sent: Array, p: Array, steps: Array) -> Array:
        model, alpha = super().server(w_t, members, ends, sent, p, steps), self.a.get("alpha", 0.95)
        self.average = alpha * self.average + (1 - alpha) * model
        return model


class FedLESAM(Rule):
    weighted = False

    def direction(self, k: int, w: Array, w_t: Array, gradient: Gradient, kd: Any) -> Array:
        old = self.states["received"][k]
        away = old - w_t if old.any() else np.zeros_like(w)
        return gradient(w + self.a.get("rho", 0.1) * away / (np.sqrt((away**2).sum()) + 1e-7))

    def finish(self, k: int, w_t: Array, end: Array, steps: int, lr: float) -> Array:
        self.states["received"][k] = w_t
        return end


class FedSMOO(WithDrift):
    weighted = False

    def begin(self) -> None:
        self.rho, self.alpha = self.a.get("rho", 0.1), self.a.get("alpha", 0.1)

    def direction(self, k: int, w: Array, w_t: Array, gradient: Gradient, kd: Any) -> Array:
        u = gradient(w) - self.states["mu"][k] - self.vectors["s"]
        e = self.rho * u / (np.sqrt((u**2).sum()) + 1e-7)
        self.states["mu"][k] += e - self.vectors["s"]
        return gradient(w + e) + self.alpha / self.relative * (self.states["h"][k] - w_t)

    def decay(self, relative: float) -> float:
        self.relative = relative
        return self.alpha / relative

    def server(self, w_t: Array, members: Array, ends: Array, sent: Array, p: Array, steps: Array) -> Array:
        mean = self.states["mu"][members].mean(0)
        self.vectors["s"] = self.rho * mean / (np.sqrt((mean**2).sum()) + 1e-7)
        return super().server(w_t, members, ends, sent, p, steps)


class FedDC(WithDrift):
    weighted = False

    def begin(self) -> None:
        self.alpha, self.changes = self.a.get("alpha", 0.01), np.zeros(len(self.w0))

    def direction(self, k: int, w: Array, w_t: Array, gradient: Gradient, kd: Any) -> Array:
        drifted = w - (w_t - self.states["h"][k])
        return gradient(w) + self.alpha * drifted + self.vectors["c"] - self.states["c"][k]

    def finish(self, k: int, w_t: Array, end: Array, steps: int, lr: float) -> Array:
        change = (w_t - end) / (steps * lr) - self.vectors["c"]
        self.states["c"][k] += change
        self.changes += change / len(self.states["c"])
        return super().finish(k, w_t, end, steps, lr)

    def server(self, w_t: Array, members: Array, ends: Array, sent: Array, p: Array, steps: Array) -> Array:
        self.vectors["c"] = self.vectors["c"] + self.changes
        self.changes = np.zeros(len(self.w0))
        return super().server(w_t, members, ends, sent, p, steps)


class FedLC(Rule):
    def change(self, counts: Array) -> tuple[Array, Array]:
        shift = [-self.a.get("tau", 1.0) / n**0.25 if n else -np.inf for n in counts]
        return np.ones(CLASSES), np.array(shift)


class FedRS(Rule):
    def change(self, counts: Array) -> tuple[Array, Array]:
        alpha = self.a.get("alpha", 0.5)
        if self.a.get("soft"):
            return counts / counts.max() * (1 - alpha) + alpha, np.zeros(CLASSES)
        return np.array([1.0 if n else alpha for n in counts]), np.zeros(CLASSES)


class FedSOL(Rule):
    def direction(self, k: int, w: Array, w_t: Array, gradient: Gradient, kd: Any) -> Array:
        d = kd(w, self.a.get("temperature", 3.0))
        return gradient(w + self.a.get("rho", 1.0) * d / (np.sqrt((d**2).sum()) + 1e-5))


RULES: dict[str, type[Rule]] = {
    rule.__name__.lower(): rule
    for rule in (
        FedAvgM, FedAdam, FedYogi, FedNova, FedExP, FedCM, FedInit, FedGKD, FedGMT, FedLESAM, FedSMOO, FedDC, FedLC,
        FedRS, FedSOL,
    )
}  # fmt: skip

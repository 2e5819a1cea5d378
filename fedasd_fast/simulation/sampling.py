"""Who takes part in a round, who fails, and who trains less."""

from __future__ import annotations

import math

import numpy as np

from ..common.randomness import Stream, generator
from ..config import Config


def participants(config: Config, round: int) -> np.ndarray:
    """[m] sorted ids of the sampled clients, never none.

    Bernoulli sampling flips a coin for each client.  Drawing the number of heads first and then who they are has the
    same distribution, and costs nothing for the clients that are not drawn.
    """
    rng = generator(config.seed, Stream.SAMPLING, round)
    if config.sampling == "fixed":
        count = max(1, int(config.participation * config.clients + 0.5))
    else:
        count = _heads(config.clients, config.participation, rng)
    return np.sort(rng.choice(config.clients, count, replace=False, shuffle=False))


def _heads(coins: int, chance: float, rng: np.random.Generator) -> int:
    """How many of the coins show heads, given that one does: where the first head is, and how many come after it.

    Tossing again until there is one would take for ever where the chance is tiny.
    """
    if chance == 1:
        return coins
    tail = math.log1p(-chance)
    first = int(math.log1p(rng.random() * math.expm1(coins * tail)) / tail)  # number of tails before it
    return 1 + int(rng.binomial(max(0, coins - 1 - first), chance))


def local_epochs(config: Config, round: int, client: int) -> int:
    """Epochs that this client trains for: 0 if it drops out, fewer than local_epochs if it straggles."""
    failures = config.failures
    if failures.dropout == 0 and failures.stragglers == 0:
        return config.local_epochs
    rng = generator(config.seed, Stream.FAILURE, round, client)
    drops, straggles = rng.random(2) < (failures.dropout, failures.stragglers)
    fewer = int(rng.integers(1, max(2, config.local_epochs)))
    return 0 if drops else fewer if straggles else config.local_epochs

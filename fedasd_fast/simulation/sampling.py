"""Who takes part in a round, who fails, and who trains less."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..common.philox import below, client_words, fraction, stream_key
from ..common.randomness import Stream, generator
from ..config import Config


def participants(config: Config, round: int) -> np.ndarray:
    """[m] sorted ids of the sampled clients, never none.

    Bernoulli sampling flips a coin for each client.  Drawing the number of heads first and then who they are has the
    same distribution, and costs nothing for the clients that are not drawn.
    """
    return _drawn(config, generator(config.seed, Stream.SAMPLING, round))


def available_participants(
    config: Config, round: int, attempt: int, present: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """[m] sorted ids of sampled clients that are present when the server asks for the n-th time; perhaps none.

    Bernoulli sampling: of the clients that it draws those that are there.  Fixed: as many as always, of those that are
    there; they are drawn until enough of them are, so that only a population that is mostly absent is looked at whole.
    """
    rng = generator(config.seed, Stream.SAMPLING, round, attempt)
    if config.sampling == "bernoulli":
        drawn = _drawn(config, rng)
        there: np.ndarray = drawn[present(drawn)]
        return there
    count, wanted = _fixed_count(config), 0
    while wanted < config.clients:
        wanted = min(config.clients, 4 * (wanted or count))
        drawn = rng.choice(config.clients, wanted, replace=False)  # in random order
        found = drawn[present(drawn)][:count]
        if len(found) == count:
            break
    return np.sort(found)


def _drawn(config: Config, rng: np.random.Generator) -> np.ndarray:
    fixed = config.sampling == "fixed"
    count = _fixed_count(config) if fixed else _heads(config.clients, config.participation, rng)
    return np.sort(rng.choice(config.clients, count, replace=False, shuffle=False))


def _fixed_count(config: Config) -> int:
    return max(1, int(config.participation * config.clients + 0.5))


def _heads(coins: int, chance: float, rng: np.random.Generator) -> int:
    """How many of the coins show heads, given that one does: where the first head is, and how many come after it.

    Tossing again until there is one would take for ever where the chance is tiny.
    """
    if chance == 1:
        return coins
    tail = math.log1p(-chance)
    first = int(math.log1p(rng.random() * math.expm1(coins * tail)) / tail)  # number of tails before it
    return 1 + int(rng.binomial(max(0, coins - 1 - first), chance))


def local_epochs(config: Config, round: int, clients: np.ndarray) -> np.ndarray:
    """[m] epochs that each client trains for: 0 if it drops out, fewer than local_epochs if it straggles."""
    failures, most = config.failures, config.local_epochs
    if failures.dropout == 0 and failures.stragglers == 0:
        return np.full(len(clients), most)
    if config.random_streams == 1:
        drawn = [_failure(config, round, int(client)) for client in clients]
        drops, straggles, fewer = (np.array(column) for column in zip(*drawn, strict=True))
    else:
        words = client_words(stream_key(config.seed, Stream.FAILURE), 0, 0, clients, round)
        chances = fraction(words[:, :2])
        drops, straggles = chances[:, 0] < failures.dropout, chances[:, 1] < failures.stragglers
        fewer = 1 + below(max(1, most - 1), words[:, 2], words[:, 3])
    epochs: np.ndarray = np.where(drops, 0, np.where(straggles, fewer, most))
    return epochs


def _failure(config: Config, round: int, client: int) -> tuple[bool, bool, int]:
    """Of version 1: whether the client drops out, whether it straggles, and how many epochs it then trains for."""
    rng = generator(config.seed, Stream.FAILURE, round, client)
    drops, straggles = rng.random(2) < (config.failures.dropout, config.failures.stragglers)
    return bool(drops), bool(straggles), int(rng.integers(1, max(2, config.local_epochs)))

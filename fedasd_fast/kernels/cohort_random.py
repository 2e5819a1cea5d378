"""Random numbers of all clients of a cohort in one call: the orders of their samples in every epoch.

A number is a function of the seed, the stream, the round, the client and its place, so any grouping of clients gives
the same.  The numpy code here is what the compiled function does, and runs where there is none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..common.philox import below, client_words, stream_key
from ..common.randomness import Stream
from . import loader

Numbers = NDArray[np.int64]


def use_compiled(implementation: str) -> bool:
    """What `implementation` ("auto", "fused" or "reference") means here."""
    if implementation not in ("auto", "fused", "reference"):
        raise ValueError(f"implementation = {implementation!r}; expected 'auto', 'fused' or 'reference'")
    if implementation == "fused" and not loader.available:
        raise RuntimeError(f"implementation = 'fused', but {loader.reason}")
    return implementation != "reference" and loader.available


def epoch_orders(
    seed: int,
    round: int,
    clients: Numbers,
    sizes: Numbers,
    epochs: Numbers,
    first_epoch: int = 0,
    *,
    implementation: str = "auto",
) -> Numbers:
    """For each client, and each of its epochs from `first_epoch` on, an order of its `sizes` samples: one after the
    other, [sum of epochs * sizes]."""
    key = stream_key(seed, Stream.SHUFFLE)
    clients, sizes, epochs = (np.ascontiguousarray(numbers, np.int64) for numbers in (clients, sizes, epochs))
    if not len(clients) == len(sizes) == len(epochs):
        raise ValueError(f"{len(clients)} clients with {len(sizes)} sizes and {len(epochs)} epochs; expected as many")
    for name, numbers, least in (("clients", clients, 0), ("sizes", sizes, 0), ("epochs", epochs, 0)):
        if len(numbers) and not least <= numbers.min() <= numbers.max() < 2**32:
            raise ValueError(f"{name} span {numbers.min()} .. {numbers.max()}; expected 0 .. 2^32 - 1")
    if use_compiled(implementation):
        orders: Numbers = loader.module.epoch_orders(key, round, first_epoch, clients, sizes, epochs)
        return orders
    parts = [
        _shuffled(key, round, client, epoch, n)
        for client, n, count in zip(clients.tolist(), sizes.tolist(), epochs.tolist(), strict=True)
        for epoch in range(first_epoch, first_epoch + count)
    ]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _shuffled(key: int, round: int, client: int, epoch: int, n: int) -> Numbers:
    """Fisher-Yates: position i is swapped with one of at most i.  A block of words has two draws."""
    words = client_words(key, np.arange((n + 1) // 2), epoch, client, round).reshape(-1, 2)[:n]
    order = list(range(n))
    for i, j in enumerate(below(np.arange(1, n + 1), words[:, 0], words[:, 1]).tolist()):
        order[i], order[j] = order[j], order[i]
    return np.array(order, np.int64)

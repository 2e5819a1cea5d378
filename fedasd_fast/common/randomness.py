"""Random numbers as a function of (seed, stream, round, client), never of what ran before.

So a result depends neither on the number of workers, nor on crashes, nor on resuming; and no global generator is
touched.  Streams are independent: drawing more from one (say, for augmentation) does not change another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

import numpy as np
import torch


class Stream(IntEnum):
    """What a draw is for.  The numbers are part of every saved result: append, never renumber."""

    PARTITION = 0
    INIT = 1  # initial parameters
    SAMPLING = 2  # of clients in a round
    SHUFFLE = 3  # order of a client's samples
    AUGMENT = 4
    FAILURE = 5  # client dropout and stragglers
    MODULE = 6  # the model's own randomness: dropout, stochastic depth
    SYNTHETIC = 7  # synthetic samples
    ANALYSIS = 8  # samples and random vectors of an analysis
    DEVICE = 9  # speed and bandwidth of simulated devices
    AVAILABILITY = 10  # of simulated devices


def generator(seed: int, stream: Stream, round: int = 0, client: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(_entropy(seed, stream, round, client))))


def _entropy(*numbers: int) -> Any:
    """The same entropy that SeedSequence derives from the numbers, in a third of the time: every client needs several
    streams."""
    return np.array(numbers, np.uint32) if min(numbers) >= 0 and max(numbers) < 2**32 else numbers


def torch_seed(seed: int, stream: Stream, round: int = 0, client: int = 0) -> int:
    """What a generator of torch is seeded with: manual_seed accepts 63 bits."""
    return int(np.random.SeedSequence(_entropy(seed, stream, round, client)).generate_state(1, np.uint64)[0]) >> 1


@contextmanager
def torch_seeded(seed: int, stream: Stream, round: int = 0, client: int = 0) -> Iterator[None]:
    """Within this context torch's global generators, which initialisers and dropout draw from, follow this stream.

    The generators are seeded one by one: torch.manual_seed also tries every kind of device that is absent, which takes
    longer than a local step.
    """
    number = torch_seed(seed, stream, round, client)
    generators = [torch.default_generator]
    if torch.cuda.is_initialized():
        generators += torch.cuda.default_generators
    before = [generator.get_state() for generator in generators]
    for generator in generators:
        generator.manual_seed(number)
    try:
        yield
    finally:
        for generator, kept in zip(generators, before, strict=True):
            generator.set_state(kept)

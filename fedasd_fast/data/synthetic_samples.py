"""Synthetic samples of a whole cohort in one call: each client's labels from its own label distribution, its inputs
around the centres of their class.

Samples are a function of the seed and the client alone (Philox, keyed by the seed).  The numpy code here is what the
compiled function (csrc/random/synthetic.h) does, to the last bit, and runs where there is none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..common.elementary import exponential, logarithm, normal_pairs
from ..common.philox import below, client_words, fraction, stream_key
from ..common.randomness import Stream
from ..kernels import loader
from ..kernels.cohort_random import Numbers, use_compiled

_LABELS, _INPUTS, _SHARDS, _GAMMA = 0, 1, 2, 16  # parts of a client's stream; part of every saved result


@dataclass(frozen=True)
class SyntheticPopulation:
    """What synthetic clients have in common."""

    seed: int
    distribution: str  # of a client's labels: iid, shards or dirichlet
    value: float  # delta of Dir(delta), or the number of classes that a client has
    classes: int
    modes: int
    noise: float
    centres: NDArray[np.float32]  # [classes * modes, D]

    def samples(
        self, clients: Numbers, sizes: Numbers, *, implementation: str = "auto"
    ) -> tuple[NDArray[np.float32], Numbers]:
        """Inputs [N, D] and labels [N] of all clients, one after the other."""
        if use_compiled(implementation):
            return self._compiled(clients, sizes, True)
        owner, sample = _places(sizes)
        labels, words = self._labels(clients, owner, sample)
        centre = labels * self.modes + below(self.modes, words[:, 2], words[:, 3])
        width = self.centres.shape[1]
        blocks = -(-width // 4)  # of a sample; each has four normal deviates
        position = sample[:, None] * blocks + np.arange(blocks)
        words = client_words(self._key, position, _INPUTS, clients[owner][:, None])
        pairs = [*normal_pairs(words[..., 0], words[..., 1]), *normal_pairs(words[..., 2], words[..., 3])]
        normal = np.stack(pairs, axis=-1).reshape(len(labels), -1)[:, :width]
        return self.centres[centre] + np.float32(self.noise) * normal, labels

    def labels(self, clients: Numbers, sizes: Numbers, *, implementation: str = "auto") -> Numbers:
        """The labels alone."""
        if use_compiled(implementation):
            return self._compiled(clients, sizes, False)[1]
        return self._labels(clients, *_places(sizes))[0]

    @property
    def _key(self) -> int:
        return stream_key(self.seed, Stream.SYNTHETIC)

    def _compiled(self, clients: Numbers, sizes: Numbers, inputs: bool) -> tuple[NDArray[np.float32], Numbers]:
        population = (self._key, self.distribution, self.value, self.modes, self.noise, self.centres)
        found: tuple[NDArray[np.float32], Numbers] = loader.module.synthetic_samples(
            *population, clients, sizes, inputs
        )
        return found

    def _labels(self, clients: Numbers, owner: Numbers, sample: Numbers) -> tuple[Numbers, NDArray[np.uint32]]:
        """Labels [N], and the words [N, 4] they were made from."""
        words = client_words(self._key, sample, _LABELS, clients[owner])
        if self.distribution == "iid":
            return below(self.classes, words[:, 0], words[:, 1]), words
        if self.distribution == "shards":
            return self._chosen(clients)[owner, below(int(self.value), words[:, 0], words[:, 1])], words
        weights = self._cumulative_weights(clients)
        at = fraction(words[:, 0]) * weights[owner, -1]
        labels = np.zeros(len(owner), np.int64)
        for label in range(self.classes - 1):
            labels += weights[owner, label] <= at
        return labels, words

    def _chosen(self, clients: Numbers) -> Numbers:
        """The classes of each client [K, classes]: the first of a shuffled list."""
        rows, chosen = np.arange(len(clients)), np.tile(np.arange(self.classes), (len(clients), 1))
        for i in range(int(self.value)):
            words = client_words(self._key, i, _SHARDS, clients)
            j = i + below(self.classes - i, words[:, 0], words[:, 1])
            chosen[rows, i], chosen[rows, j] = chosen[rows, j], chosen[rows, i].copy()
        return chosen

    def _cumulative_weights(self, clients: Numbers) -> NDArray[np.float64]:
        """Of each client's labels [K, classes], from Gamma deviates (Marsaglia and Tsang, 2000): a Gamma(delta) one is
        a Gamma(delta + 1) one times U^(1 / delta), whose logarithm does not underflow."""
        d = (self.value + 1.0) - 1.0 / 3.0
        c = 1.0 / math.sqrt(9.0 * d)
        owner, label = (grid.ravel() for grid in np.indices((len(clients), self.classes)))
        logs = np.empty(len(owner))
        left, attempt = np.arange(len(owner)), 0
        while len(left):
            words = client_words(self._key, label[left], _GAMMA + attempt, clients[owner[left]])
            x = normal_pairs(words[:, 0], words[:, 1])[0].astype(np.float64)
            root = 1.0 + c * x
            v = root * root * root
            log_v = logarithm(np.where(root > 0.0, v, 1.0))
            bound = 0.5 * x * x + d - d * v + d * log_v
            accepted = (root > 0.0) & (logarithm(fraction(words[:, 2])) < bound)
            boost = logarithm(fraction(words[:, 3])) / self.value
            logs[left[accepted]] = ((logarithm(np.array([d])) + log_v) + boost)[accepted]
            left, attempt = left[~accepted], attempt + 1
        table = logs.reshape(len(clients), self.classes)
        weights: NDArray[np.float64] = exponential(table - table.max(axis=1, keepdims=True)).cumsum(axis=1)
        return weights


def _places(sizes: Numbers) -> tuple[Numbers, Numbers]:
    """For every sample of a cohort, whose it is (its place in the cohort) and which of that client's it is."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return owner, np.arange(len(owner)) - (np.cumsum(sizes) - sizes)[owner]

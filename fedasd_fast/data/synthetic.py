"""Synthetic data for any number of clients, classes and dimensions, generated on demand.

Every class is a mixture of Gaussians around its own centres.  A client's samples are a function of the seed and the
client's number only, so only its size is stored, and a million clients take a few megabytes.

Version 2 of the random numbers makes the samples of a whole cohort in one call (synthetic_samples.py).  With version 1,
client by client, the samples of the first clients to train are kept while there is room: generating them takes longer
than a small network's local step.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from ..common.randomness import Stream, generator
from ..common.schema import ConfigError
from ..settings import Synthetic
from .federated import FederatedData, Samples, count_labels
from .partition import client_sizes, log_dirichlet, parse_spec
from .synthetic_samples import SyntheticPopulation

CENTRES, CLIENTS, TEST, SIZES = range(4)  # sub-streams of Stream.SYNTHETIC; part of every saved result
_MIN_DELTA = 1e-300  # smaller values have the same effect, and would overflow even logarithms
_KEPT_BYTES = 64 * 2**20


class SyntheticData(FederatedData):
    """Each client has its own label distribution: drawn from Dir(delta) for dirichlet_<delta>, uniform over n random
    classes for shards_<n>, and uniform over all for iid."""

    def __init__(
        self,
        settings: Synthetic,
        clients: int,
        partition_spec: str,
        seed: int,
        size_sigma: float = 0.0,
        random_streams: int = 2,
    ) -> None:
        """`random_streams`: version of the random numbers, as in Config."""
        self._kind, self._value = parse_spec(partition_spec)
        if self._kind == "natural":
            raise ConfigError(
                "partition = natural, but synthetic samples have no users; use dirichlet_<delta>, shards_<n> or iid"
            )
        if self._kind == "shards" and self._value > settings.classes:
            raise ConfigError(
                f"partition = {partition_spec}, but there are only {settings.classes} classes; use "
                f"shards_{settings.classes} or less, or more synthetic.classes"
            )
        if not 0 <= size_sigma < math.inf:
            raise ConfigError(f"size_sigma = {size_sigma}; expected 0 (equal sizes) or a positive number")
        self.name, self.num_classes, self.input_shape = "synthetic", settings.classes, tuple(settings.shape)
        self._settings, self._seed = settings, seed
        self._kept: dict[int, Samples] = {}
        self._kept_bytes = 0
        dimensions = math.prod(settings.shape)
        centres = self._rng(CENTRES).standard_normal((settings.classes * settings.modes, dimensions), np.float32)
        self._centres = centres * np.float32(settings.separation)
        samples = clients * settings.samples_per_client
        self.sizes = torch.from_numpy(client_sizes(samples, clients, size_sigma, self._rng(SIZES)))
        self._population: SyntheticPopulation | None = None
        if random_streams != 1:
            value = max(self._value, _MIN_DELTA)
            sizes = settings.classes, settings.modes, settings.noise
            self._population = SyntheticPopulation(seed, self._kind, value, *sizes, self._centres)
        # The test set has every class equally often.
        self.test = self._draw(np.arange(settings.test_samples) % settings.classes, self._rng(TEST))

    def client(self, k: int) -> Samples:
        if self._population:
            return self._generated(self._population, np.array([k]))
        if k in self._kept:
            return self._kept[k]
        self._check_client(k)
        rng = self._rng(CLIENTS, k)
        samples = self._draw(self._labels(k, rng), rng)
        if self._kept_bytes + samples.nbytes <= _KEPT_BYTES:  # nothing is ever removed: threads need no lock
            self._kept[k] = samples
            self._kept_bytes += samples.nbytes
        return samples

    def cohort(self, clients: NDArray[np.int64]) -> Samples:
        if not self._population or self._has_own(SyntheticData, "client"):
            return super().cohort(clients)
        return self._generated(self._population, clients)

    def cohort_label_counts(self, clients: NDArray[np.int64]) -> torch.Tensor:
        if not self._population or self._has_own(SyntheticData, "client", "label_counts"):
            return super().cohort_label_counts(clients)
        return self._counted(self._population, clients)

    def label_counts(self, k: int) -> torch.Tensor:
        if self._population:
            return self._counted(self._population, np.array([k]))[0]
        self._check_client(k)
        labels = self._labels(k, self._rng(CLIENTS, k))
        return torch.from_numpy(np.bincount(labels, minlength=self.num_classes))

    @property
    def nbytes(self) -> int:
        return self.test.nbytes + self.sizes.nbytes + self._centres.nbytes + self._kept_bytes

    def _generated(self, population: SyntheticPopulation, clients: NDArray[np.int64]) -> Samples:
        self._check_clients(clients)
        inputs, labels = population.samples(clients, self.sizes.numpy()[clients])
        return Samples(torch.from_numpy(inputs).view(-1, *self.input_shape), torch.from_numpy(labels))

    def _counted(self, population: SyntheticPopulation, clients: NDArray[np.int64]) -> torch.Tensor:
        self._check_clients(clients)
        sizes = self.sizes.numpy()[clients]
        labels = torch.from_numpy(population.labels(clients, sizes))
        return count_labels(labels, torch.from_numpy(sizes), self.num_classes)

    def _rng(self, part: int, k: int = 0) -> np.random.Generator:
        return generator(self._seed, Stream.SYNTHETIC, part, k)

    def _labels(self, k: int, rng: np.random.Generator) -> NDArray[np.int64]:
        n, classes = int(self.sizes[k]), self.num_classes
        if self._kind == "iid":
            return rng.integers(classes, size=n)
        if self._kind == "shards":
            return rng.choice(classes, int(self._value), replace=False)[rng.integers(int(self._value), size=n)]
        cdf = np.exp(log_dirichlet(self._value, (classes,), rng)).cumsum()
        labels: NDArray[np.int64] = cdf.searchsorted(rng.random(n) * cdf[-1], side="right")
        return np.minimum(labels, classes - 1)  # the product may round up to the end of the interval

    def _draw(self, labels: NDArray[np.int64], rng: np.random.Generator) -> Samples:
        """One sample for each label, around one of the centres of its class, chosen uniformly."""
        modes = rng.integers(self._settings.modes, size=len(labels))
        inputs = rng.standard_normal((len(labels), self._centres.shape[1]), np.float32)
        inputs *= np.float32(self._settings.noise)
        inputs += self._centres[labels * self._settings.modes + modes]
        return Samples(torch.from_numpy(inputs).view(-1, *self.input_shape), torch.from_numpy(labels))

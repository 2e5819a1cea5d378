"""Partitions of a training set among clients: Dirichlet, IID, shards, or by user.

`dirichlet_<delta>` is the balanced procedure of the FedDyn and ASD experiments: every client has floor(N / K) samples
and a label distribution pi_k ~ Dir(delta, ..., delta).  Repeatedly, a client that is not yet full is chosen at random,
draws a class from pi_k, and takes a sample of that class, until all are full.  A class that has run out is not drawn
again: pi_k is renormalised over the others.  (Redrawing until a class with samples comes up gives the same
distribution, but may never end.)

Here the same distribution is drawn without the loop over samples:

* Order of the clients' draws.  If every client draws at the times of a Poisson process of rate 1 and stops when full,
  the next client to draw is always uniform among those not full (the process has no memory).  So the order is that of
  n_k cumulated exponential times for each client k.
* Classes.  They are drawn for all draws at once, as if no class ran out.  All of them are valid up to the first draw of
  a class with nothing left.  From there on, the draws of that class are repeated with the renormalised distributions;
  the others stay, because a draw that is not of that class already has the renormalised distribution.  This is repeated
  at most once for each class.
* Distributions are kept as logarithms, so however small delta is, those of a client are never all zero, not even over
  the last class that is left.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from ..common.schema import ConfigError

Array: TypeAlias = np.ndarray[Any, Any]


def partition(
    targets: ArrayLike,  # [N] labels
    num_classes: int,
    clients: int,
    spec: str,  # dirichlet_<delta> | iid | shards_<n> | natural
    rng: np.random.Generator,
    *,
    users: ArrayLike | None = None,  # [N], for natural
    size_sigma: float = 0.0,  # > 0: log-normal sizes with this standard deviation of their logarithm
) -> list[Array]:
    """Sorted row numbers of every client, disjoint; a function of the arguments and the state of `rng`."""
    labels = np.asarray(targets)
    kind, value = parse_spec(spec)
    _check(labels, num_classes, clients, size_sigma)
    if kind == "natural":
        _refuse_sizes(spec, size_sigma)
        return _natural(users, len(labels), clients)
    if kind == "shards":
        _refuse_sizes(spec, size_sigma)
        return _shards(labels, clients, int(value), rng)
    sizes = client_sizes(len(labels), clients, size_sigma, rng)
    if kind == "iid":
        return _iid(labels, num_classes, sizes, rng, balanced=size_sigma == 0)
    return _dirichlet(labels, log_dirichlet(value, (clients, num_classes), rng), sizes, rng)


def parse_spec(spec: str) -> tuple[str, float]:
    """`dirichlet_0.3` as ("dirichlet", 0.3); the number is 0 for iid and natural."""
    if spec in ("iid", "natural"):
        return spec, 0.0
    match = re.fullmatch(r"shards_([1-9]\d*)|dirichlet_(\d*\.?\d+(?:e[+-]?\d+)?)", spec)
    if match is None:
        raise ConfigError(
            f"partition = {spec!r}; expected dirichlet_<delta> (dirichlet_0.3), iid, shards_<n> (shards_2) or natural"
        )
    if match[1]:
        return "shards", int(match[1])
    delta = float(match[2])
    if not 0 < delta < float("inf"):
        raise ConfigError(f"partition = {spec!r}; expected a positive finite delta, for instance dirichlet_0.3")
    return "dirichlet", delta


def client_sizes(samples: int, clients: int, sigma: float, rng: np.random.Generator) -> Array:
    """floor(N / K) for all, or 1 + a log-normal proportion of the rest; never more than N in total."""
    if sigma == 0:
        return np.full(clients, samples // clients)
    logs = sigma * rng.standard_normal(clients)
    weights = np.exp(logs - logs.max())
    sizes: Array = 1 + np.floor(weights / weights.sum() * (samples - clients)).astype(np.int64)
    return sizes


def log_dirichlet(delta: float, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Logarithms, up to a constant, of draws from Dir(delta, ..., delta) along the last dimension.

    A Gamma(delta) variable is a Gamma(delta + 1) one times U^(1 / delta); its logarithm does not underflow.
    """
    delta = max(delta, 1e-300)  # smaller values have the same effect, and would overflow even the logarithm
    logs = np.log(rng.standard_gamma(delta + 1, shape)) + np.log1p(-rng.random(shape)) / delta
    shifted: Array = logs - logs.max(axis=-1, keepdims=True)
    return shifted


def _dirichlet(labels: Array, log_prior: Array, sizes: Array, rng: np.random.Generator) -> list[Array]:
    drawing = _order_of_draws(sizes, rng)
    left = np.bincount(labels, minlength=log_prior.shape[1])
    drawn_classes = _draw_classes(log_prior, drawing, left > 0, rng)
    start = 0
    while True:
        order, rank = _rank_by_class(drawn_classes[start:])
        beyond = order[rank >= left[drawn_classes[start:][order]]]
        if len(beyond) == 0:
            break
        first = start + int(beyond.min())
        left = left - np.bincount(drawn_classes[start:first], minlength=len(left))
        start = first
        redraw = start + np.flatnonzero(left[drawn_classes[start:]] == 0)
        drawn_classes[redraw] = _draw_classes(log_prior, drawing[redraw], left > 0, rng)
    # The j-th draw of a class gets the j-th of its samples in random order.
    shuffled = rng.permutation(len(labels))
    pools = shuffled[np.argsort(labels[shuffled], kind="stable")]
    starts = np.cumsum(np.bincount(labels, minlength=len(left))) - np.bincount(labels, minlength=len(left))
    order, rank = _rank_by_class(drawn_classes)
    rows = np.empty(len(drawing), dtype=np.int64)
    rows[order] = pools[starts[drawn_classes[order]] + rank]
    return _split(rows[np.lexsort((rows, drawing))], sizes)


def _order_of_draws(sizes: Array, rng: np.random.Generator) -> Array:
    clients = np.repeat(np.arange(len(sizes)), sizes)
    gaps = rng.standard_exponential(len(clients))
    times = np.cumsum(gaps)
    starts = np.cumsum(sizes) - sizes
    times -= np.repeat(times[starts] - gaps[starts], sizes)
    return clients[np.argsort(times, kind="stable")]


def _draw_classes(log_prior: Array, drawing: Array, allowed: Array, rng: np.random.Generator) -> Array:
    """One class for each client in `drawing`, from its label distribution over the allowed classes."""
    clients, row = np.unique(drawing, return_inverse=True)
    logs = np.where(allowed, log_prior[clients], -np.inf)
    proportions = np.exp(logs - logs.max(axis=1, keepdims=True))
    cdf = np.cumsum(proportions, axis=1)
    cdf /= cdf[:, -1:]
    # All clients in one search: i is added to the distribution function of the i-th.  A class of probability 0 adds
    # nothing to it and is never the first to exceed a point, and the point stays below the end of its own client.
    point = np.minimum(row + rng.random(len(row)), np.nextafter(row + 1.0, 0.0))
    found = np.searchsorted((cdf + np.arange(len(clients))[:, None]).ravel(), point, side="right")
    classes: Array = (found - row * log_prior.shape[1]).astype(np.int32)
    return classes


def _rank_by_class(classes: Array) -> tuple[Array, Array]:
    """An order that sorts by class and keeps the sequence within, and how many of its class precede each entry."""
    order = np.argsort(classes, kind="stable")
    counts = np.bincount(classes)
    return order, np.arange(len(classes)) - np.repeat(np.cumsum(counts) - counts, counts)


def _iid(labels: Array, num_classes: int, sizes: Array, rng: np.random.Generator, balanced: bool) -> list[Array]:
    """The same count of every class for every client where the counts allow it, else a random split."""
    rows = rng.permutation(len(labels))
    clients = len(sizes)
    if balanced and not np.any(np.bincount(labels, minlength=num_classes) % clients):
        # Sorted by class, every K-th sample from k on is client k's.
        by_class = rows[np.argsort(labels[rows], kind="stable")]
        return [np.sort(by_class[k::clients]) for k in range(clients)]
    return [np.sort(part) for part in _split(rows[: sizes.sum()], sizes)]


def _shards(labels: Array, clients: int, each: int, rng: np.random.Generator) -> list[Array]:
    length = len(labels) // (clients * each)
    if length == 0:
        raise ConfigError(
            f"partition = shards_{each} for {clients} clients cuts {len(labels)} samples into {clients * each} shards; "
            "use fewer clients or fewer shards"
        )
    rows = rng.permutation(len(labels))
    rows = rows[np.argsort(labels[rows], kind="stable")][: length * clients * each]
    assigned = rows.reshape(clients * each, length)[rng.permutation(clients * each)]
    return list(np.sort(assigned.reshape(clients, each * length), axis=1))


def _natural(users: ArrayLike | None, samples: int, clients: int) -> list[Array]:
    if users is None:
        raise ConfigError(
            "partition = natural, but this dataset has no user ids; use one that has, or partition = dirichlet_<delta>"
        )
    ids = np.asarray(users)
    if ids.shape != (samples,):
        raise ValueError(f"users have shape {ids.shape}; expected one for each of {samples} samples")
    _, counts = np.unique(ids, return_counts=True)
    if len(counts) != clients:
        raise ConfigError(f"clients = {clients}, but the dataset has {len(counts)} users; set clients={len(counts)}")
    return _split(np.argsort(ids, kind="stable"), counts)


def _split(rows: Array, sizes: Array) -> list[Array]:
    return np.split(rows, np.cumsum(sizes)[:-1])


def _refuse_sizes(spec: str, sigma: float) -> None:
    if sigma != 0:
        raise ConfigError(f"size_sigma = {sigma} with partition = {spec}; only dirichlet and iid take log-normal sizes")


def _check(labels: Array, num_classes: int, clients: int, sigma: float) -> None:
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(f"targets have shape {labels.shape} and dtype {labels.dtype}; expected whole numbers [N]")
    if clients < 1:
        raise ConfigError(f"clients = {clients}; expected at least 1")
    if clients > len(labels):
        raise ConfigError(f"clients = {clients} for {len(labels)} samples; use at most {len(labels)} clients")
    if labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError(f"targets span {labels.min()} .. {labels.max()}; expected 0 .. {num_classes - 1}")
    if not 0 <= sigma < float("inf"):
        raise ConfigError(f"size_sigma = {sigma}; expected 0 (equal sizes) or a positive number")

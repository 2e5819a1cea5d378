"""Which clients an analysis looks at, and which labels such a client has much or little of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..data.federated import FederatedData
from ..simulation.errors import SimulationError

GROUPS = ("much", "little", "none")


def chosen(data: FederatedData, clients: int | Sequence[int], seed: int) -> list[int]:
    """A number: so many clients, drawn with this seed, or all if there are fewer.  Ids: these, in their order."""
    if isinstance(clients, int):
        if clients < 1:
            raise SimulationError(f"clients = {clients}; expected at least 1, or a list of client ids")
        drawn = np.random.default_rng(seed).choice(data.num_clients, min(clients, data.num_clients), replace=False)
        return sorted(int(k) for k in drawn)
    ids = list(clients)
    wrong = [k for k in ids if not 0 <= k < data.num_clients]
    if not ids or wrong or len(set(ids)) < len(ids):
        raise SimulationError(
            f"clients = {ids}; expected different client ids, at least one, of 0 .. {data.num_clients - 1}"
        )
    return ids


def label_groups(counts: Tensor) -> dict[str, Tensor]:
    """Masks [C] from the client's counts [C].

    The line between much and little is the client's own even share: n_k over the number of labels that it has.  A line
    that is the same for everyone, such as 1 / C, would leave one side empty where clients have fewer samples than there
    are classes.
    """
    held = counts > 0
    much = held & (counts * held.sum() >= counts.sum())  # whole numbers: a tie is a tie
    return {"much": much, "little": held & ~much, "none": ~held}


def shares(counts: Tensor) -> list[float]:
    """p_k [C]."""
    values: list[float] = (counts / counts.sum()).to(torch.float64).tolist()
    return values

"""Labels of a client grouped by how many samples it has of them: much, little, none."""

from __future__ import annotations

import torch
from torch import Tensor

LABEL_GROUPS = ("much", "little", "none")


def label_groups(counts: Tensor) -> dict[str, Tensor]:
    """Masks [C] from the client's label counts [C].

    The boundary between much and little is the client's own uniform proportion: n_k over the number of labels that it
    has.  A boundary that is the same for all clients, such as 1 / C, would leave one group empty where clients have
    fewer samples than there are classes.
    """
    held = counts > 0
    much = held & (counts * held.sum() >= counts.sum())  # in integers: a tie stays a tie
    return {"much": much, "little": held & ~much, "none": ~held}


def label_proportions(counts: Tensor) -> list[float]:
    """p_k [C]."""
    values: list[float] = (counts / counts.sum()).to(torch.float64).tolist()
    return values

"""The order of one client's samples in one epoch, by the readable reference."""

from __future__ import annotations

import numpy as np

from fedasd_fast.kernels.cohort_random import epoch_orders


def epoch_order(seed: int, round: int, client: int, size: int, epoch: int = 0) -> np.ndarray:
    one = (np.array([number]) for number in (client, size, 1))
    return epoch_orders(seed, round, *one, first_epoch=epoch, implementation="reference")

"""How many threads a local step is worth.

Waking a second thread costs some ten microseconds for every operation, and when cores are busy far more: a small model
is many times faster on one.  The choice is a function of the work in a step, not of a measurement, so that the same
settings give the same bits on the same machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_WORTHWHILE_FLOPS = 1e8  # floating-point operations in a step: some milliseconds of one core


def worth_threads(flops: int) -> bool:
    return flops >= _WORTHWHILE_FLOPS


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def choose_threads(wanted: int, flops: int) -> int:
    """`wanted`, or for 0 as many as a step of `flops` makes use of."""
    return wanted or (torch.get_num_threads() if worth_threads(flops) else 1)


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)

"""A simulation has the process-wide state of torch to itself, and runs under settings of its own.

The generators that initialisers and dropout draw from, and the number of threads, belong to the whole process: two
simulations at a time would change each other's results.  And what the caller set for his own work (float64 by default,
no gradients) must not change the bits of a run, which are a function of its configuration.

The precision of float32 multiplications on GPUs (TF32) unless a setting of the run says it (tf32.py), deterministic
algorithms and the number of threads stay as the caller set them: these he sets for runs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from ..errors import SimulationError

_running = threading.RLock()  # of the thread that simulates; a callback of it may simulate in turn


@contextmanager
def own_process_state() -> Iterator[None]:
    if not _running.acquire(blocking=False):
        raise SimulationError(
            "another thread of this process is running a simulation; torch's random generators and number of threads "
            "are shared, so the two would change each other's results: run one after the other, or each in a process "
            "of its own"
        )
    try:
        with _own_torch_settings():
            yield
    finally:
        _running.release()


@contextmanager
def _own_torch_settings() -> Iterator[None]:
    before = torch.get_default_dtype()
    with ExitStack() as settings:
        settings.enter_context(torch.inference_mode(False))
        settings.enter_context(torch.enable_grad())
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                settings.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":  # only then: it slows every call of torch
            settings.enter_context(torch.device("cpu"))
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(before)

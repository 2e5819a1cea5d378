"""Timing on a GPU: device time of a call that finds nothing in the L2 cache, and calls back to back."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping

import torch

Call = Callable[[], object]


class Timer:
    def __init__(self, device: torch.device) -> None:
        l2 = torch.cuda.get_device_properties(device).L2_cache_size
        # Twice the cache: whatever its replacement policy, nothing older than this buffer is left.
        self.buffer = torch.empty(max(2 * l2, 2**26), dtype=torch.uint8, device=device)
        self.flush()
        self.flush_seconds = min(self._event_seconds(self.flush) for _ in range(5))

    def flush(self) -> None:
        self.buffer.zero_()

    def device_times(self, calls: Mapping[str, Call], rounds: int, warm: int = 3) -> dict[str, list[float]]:
        """Seconds of each call in each round, in an order drawn anew each round."""
        flushes = {name: self._flushes(call, warm) for name, call in calls.items()}
        samples: dict[str, list[float]] = {name: [] for name in calls}
        order = list(calls)
        shuffle = random.Random(0).shuffle
        for _ in range(rounds):
            shuffle(order)
            for name in order:
                torch.cuda.synchronize()
                for _ in range(flushes[name]):
                    self.flush()
                samples[name].append(self._event_seconds(calls[name]))
        return samples

    def _flushes(self, call: Call, warm: int) -> int:
        """As many as keep the GPU busy until the host has queued the whole call: gaps between launches that the host is
        late with would count otherwise."""
        for _ in range(warm):
            call()
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        return 1 + math.ceil(1.5 * (time.perf_counter() - start) / self.flush_seconds)

    @staticmethod
    def _event_seconds(call: Call) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3


def back_to_back(call: Call, calls: int, rounds: int) -> list[float]:
    """Seconds a call on the host's clock, from the first being queued to the last being done; one for each round."""
    samples = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - start) / calls)
    return samples


def copy_bandwidth(device: torch.device, rounds: int = 10) -> float:
    """Bytes a second of a copy far larger than any cache; it reads and writes."""
    free, _ = torch.cuda.mem_get_info(device)
    source = torch.zeros(min(2**30, free // 8), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = min(Timer._event_seconds(lambda: target.copy_(source)) for _ in range(rounds))
    return 2 * source.nbytes / seconds

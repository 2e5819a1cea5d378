"""CUDA graphs, and what a call puts on the GPU."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

T = TypeVar("T")

# Categories of the profiler's trace that are work of the GPU.
DEVICE_EVENTS = ("kernel", "gpu_memcpy", "gpu_memset")


class Graph(Generic[T]):
    """A call as a CUDA graph: each replay reads the same inputs anew and writes to the same outputs."""

    def __init__(self, call: Callable[[], T]) -> None:
        self.call = call  # the graph knows addresses only: this keeps the memory behind them
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):  # what is set up at the first call must not be captured
                call()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.outputs = call()

    def __call__(self) -> T:
        self.graph.replay()
        return self.outputs


def launches(call: Callable[[], object]) -> list[tuple[str, str]]:
    """Category and name of everything one call makes the GPU do, in order."""
    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        call()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return work_in(json.loads(path.read_text()))


def work_in(trace: dict[str, Any]) -> list[tuple[str, str]]:
    work = [event for event in trace["traceEvents"] if event.get("cat") in DEVICE_EVENTS]
    return [(event["cat"], event["name"]) for event in sorted(work, key=lambda event: event["ts"])]

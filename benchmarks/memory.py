"""Peak extra memory of one call, in a process of its own: python -m benchmarks.memory IMPLEMENTATION THREADS B C."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import subprocess
import sys
from pathlib import Path

import torch

from .cases import make_case
from .implementations import IMPLEMENTATIONS

# Large enough to start the thread pool, small beside every shape that is measured.
WARM_SHAPE = (64, 600)


def extra_memory(name: str, shape: tuple[int, ...], threads: int) -> float:
    """Rise of the peak resident set during one call, as a multiple of the gradient's size."""
    command = [sys.executable, "-m", "benchmarks.memory", name, str(threads), *map(str, shape)]
    # A fixed threshold gives freed buffers back at once; glibc's adaptive one keeps those of the set-up for reuse,
    # and the call would look cheaper than it is.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        reason = next((line for line in reversed(done.stderr.splitlines()) if "Error" in line), done.stderr[-200:])
        raise RuntimeError(f"exit code {done.returncode}: {reason}")
    return float(done.stdout.split()[-1])


def _status(key: str) -> int:
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(key))
    return int(line.split()[1]) * 1024


def _reset_peak() -> int:
    """Forgets the peak so far and returns what is resident now."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _status("VmRSS")
    except OSError:
        return _peak()


def _peak() -> int:
    try:
        return _status("VmHWM")
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _release() -> None:
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


def _measure(name: str, shape: tuple[int, ...], threads: int) -> float:
    torch.set_num_threads(threads)
    call = IMPLEMENTATIONS[name](make_case(shape))
    # A warm call of the same shape would hide a workspace that a kernel keeps; only the compiler, which works for one
    # shape at a time, needs it.
    warm = call if name == "compiled" else IMPLEMENTATIONS[name](make_case(WARM_SHAPE))
    warm()
    del warm
    _release()
    before = _reset_peak()
    result = call()
    peak = _peak()
    del result
    return (peak - before) / (4 * torch.Size(shape).numel())


if __name__ == "__main__":
    print(_measure(sys.argv[1], tuple(map(int, sys.argv[3:])), int(sys.argv[2])))

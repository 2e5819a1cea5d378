"""This machine's rate of matrix multiplication: one process of one thread on every core, all at once, added up."""

from __future__ import annotations

import os
import subprocess
import sys
import time

SIZE, SECONDS = 1024, 1.0


def gemm_rate(processes: int) -> float:
    """GFLOP/s."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.peers.gemm"]
    pipe = subprocess.PIPE
    workers = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) for _ in range(processes)]
    for worker in workers:
        worker.stdout.readline()  # ready
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    return sum(float(worker.communicate()[0]) for worker in workers)


def main() -> None:
    import torch

    torch.set_num_threads(1)
    a, b = torch.randn(2, SIZE, SIZE)
    out = torch.mm(a, b)
    print("ready", flush=True)
    sys.stdin.readline()
    count, began = 0, time.perf_counter()
    while (passed := time.perf_counter() - began) < SECONDS:
        torch.mm(a, b, out=out)
        count += 1
    print(2 * SIZE**3 * count / passed / 1e9)


if __name__ == "__main__":
    main()

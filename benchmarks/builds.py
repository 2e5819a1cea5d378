"""What the build for every torch (`_stable`) costs a call, beside the one for this torch (`_C`).

    FEDASD_BUILD=both pip install --no-build-isolation -e .
    python -m benchmarks.builds

The two cannot live in one process.  Two workers take turns of ten calls, and the best turn counts: what else the
machine does meets both.
"""

from __future__ import annotations

import os
import subprocess
import sys
import timeit
from collections.abc import Callable

import torch

import fedasd_fast as fa
from fedasd_fast.simulation.client import fused_update

BUILDS = ("_C", "_stable")
TURNS, CALLS = 400, 10


def cases() -> dict[str, Callable[[], object]]:
    """Small batches, where a call is mostly overhead: 10 rows of 10 classes."""
    torch.manual_seed(0)
    student, teacher = torch.randn(10, 10, requires_grad=True), torch.randn(10, 10)
    targets = torch.arange(10) % 10
    prior = fa.label_prior(targets, 10)
    cached = fa.TeacherCache.from_logits(teacher, targets, prior)[:]
    w, g = torch.zeros(1000), torch.ones(1000)
    return {
        "asd_loss_and_grad, cached teacher": lambda: fa.asd_loss_and_grad(student, cached, targets, None, 3.0),
        "asd_objective, value": lambda: fa.asd_objective(student.detach(), teacher, targets, prior, 3.0),
        "asd_objective and backward": lambda: fa.asd_objective(student, teacher, targets, prior, 3.0).backward(),
        "client update of 1,000 numbers": lambda: fused_update.local_step(w, g, 0.1, clip_norm=10.0),
    }


def work() -> None:
    """Answers each line with the microseconds of a call of every case."""
    torch.set_num_threads(1)
    calls = list(cases().values())
    for _ in sys.stdin:
        times = [timeit.timeit(call, number=CALLS) / CALLS * 1e6 for call in calls]
        print(*times, flush=True)


def main() -> None:
    workers = {
        build: subprocess.Popen(
            [sys.executable, "-m", "benchmarks.builds", "work"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "FEDASD_EXTENSION": build},
        )
        for build in BUILDS
    }
    best = {build: [float("inf")] * len(cases()) for build in BUILDS}
    for _ in range(TURNS):
        for build, worker in workers.items():
            assert worker.stdin is not None
            assert worker.stdout is not None
            print(file=worker.stdin, flush=True)
            times = map(float, worker.stdout.readline().split())
            best[build] = [min(pair) for pair in zip(best[build], times, strict=True)]
    for worker in workers.values():
        worker.communicate()
    print("| call | `_C` µs | `_stable` µs | ratio |\n|---|---|---|---|")
    for name, own, stable in zip(cases(), best["_C"], best["_stable"], strict=True):
        print(f"| {name} | {own:.1f} | {stable:.1f} | {stable / own:.1f} |")


if __name__ == "__main__":
    work() if sys.argv[1:] == ["work"] else main()

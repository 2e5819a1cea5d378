"""The measurements as a Markdown table.  There is no ratio between contenders that did not do the same work."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from .harness import Measured
from .workload import Workload

TABLE_HEADER = ("contender", "setting", "best s/round", "median", "p20 - p80", "updates/s", "of GEMM rate", "peak MB",
        "test loss", "ours is faster: best", "median")  # fmt: skip


def same_work(measured: Measured, workload: Workload) -> bool:
    rounds = len(measured.seconds)
    return (measured.updates, measured.steps) == (rounds * workload.cohort, rounds * workload.steps)


def table(workload: Workload, results: Sequence[Measured], step_flops: float, gemm: float) -> str:
    """`gemm`: FLOP/s of the machine.  Ratios are to the best setting of ours, by best and by median round."""
    ours = [r for r in results if r.contender.ours and r.seconds and same_work(r, workload)]
    best = min((min(r.seconds) for r in ours), default=None)
    middle = min((statistics.median(r.seconds) for r in ours), default=None)
    lines = ["| " + " | ".join(TABLE_HEADER) + " |", "|---|---|" + "---:|" * (len(TABLE_HEADER) - 2)]
    for r in results:
        name, label = r.contender.name, r.contender.label
        if not r.seconds:
            lines.append(f"| {name} | {label} | not available: {r.problem} " + "| " * (len(TABLE_HEADER) - 3) + "|")
            continue
        fastest, median = min(r.seconds), statistics.median(r.seconds)
        low, *_, high = statistics.quantiles(r.seconds, n=5, method="inclusive") if r.seconds[1:] else r.seconds * 2
        if not same_work(r, workload):
            ratios = [f"other work: {r.updates} updates, {r.steps} steps in {len(r.seconds)} rounds", ""]
        elif best is None or middle is None:
            ratios = ["", ""]
        else:
            ratios = [f"{fastest / best:.2f}", f"{median / middle:.2f}"]
        cells = [
            *(name, label, f"{fastest:.4f}", f"{median:.4f}", f"{low:.4f} - {high:.4f}"),
            *(f"{workload.cohort / fastest:,.1f}", f"{workload.steps * step_flops / fastest / gemm:.2f}"),
            *(f"{r.memory / 1e6:.0f}", f"{r.loss:.3f}", *ratios),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)

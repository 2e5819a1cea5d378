"""Tables of the measurements of benchmarks.gpu: bytes, bandwidth.  Needs no GPU."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .cases import Case

Row = dict[str, Any]

DESCRIPTIONS = {
    "eager": "`fedasd_fast.reference`, forward and backward through autograd",
    "eager_minimal": "eight lines of PyTorch without options or checks, forward and backward",
    "compiled_minimal": "`torch.compile` of these lines, forward and backward",
    "eager_minimal_graph": "the same lines as a CUDA graph",
    "fused_autograd": "`asd_objective(...).backward()`",
    "loss_and_grad": "`asd_loss_and_grad(...)`, raw teacher logits",
    "loss_and_grad_cached": "`asd_loss_and_grad(...)` with `cache[rows]`; making the cache, once a round, not counted",
    "loss_and_grad_graph": "`loss_and_grad` as a CUDA graph",
    "loss_and_grad_cached_graph": "`loss_and_grad_cached` as a CUDA graph",
    "copy": "a copy within the GPU that reads and writes together as many bytes as `loss_and_grad` has to",
}


def bytes_moved(case: Case, *, cached: bool) -> int:
    """What any implementation must read and write once: inputs, gradient, loss.  Anything beyond that is overhead."""
    rows = case.targets.numel()
    clients = rows // case.targets.shape[-1]
    total = 2 * case.student.nbytes + case.targets.nbytes + clients * 4  # logits, gradient, labels, losses
    if not cached:
        return total + case.teacher.nbytes + rows * case.prior.element_size()  # the share of each label
    cache = case.cache
    numbers = (cache.constant, cache.log_weight, cache.targets)
    total += case.student.numel() * cache.rows.element_size() + case.rows.nbytes
    return total + rows * sum(tensor.element_size() for tensor in numbers)


def peak_bandwidth(properties: Any) -> float | None:
    """Bytes a second by the memory's clock and width; None where torch or the driver does not tell."""
    kilohertz = getattr(properties, "memory_clock_rate", 0) or 0
    bits = getattr(properties, "memory_bus_width", 0) or 0
    return 2 * 1e3 * kilohertz * bits / 8 or None  # two transfers a clock


def markdown(result: dict[str, Any]) -> str:
    gpu, settings = result["gpu"], result["settings"]
    versions = result["environment"]["versions"]
    parts = [
        "# Loss and gradient on a GPU",
        f"Made by `make bench-gpu` on {result['environment']['date']}: {gpu['name']}, compute capability "
        f"{gpu['capability']}, L2 cache {gpu['l2_bytes'] / 2**20:.0f} MiB, CUDA {gpu['cuda']}; torch "
        f"{versions['torch']}, Python {versions['python']}, fedasd_fast {versions['fedasd_fast']}.",
        f"Time is device time by CUDA events, the median of {settings['rounds']} repetitions in turns of random order; "
        f"before each, {gpu['flush_bytes'] / 2**20:.0f} MiB are written, so that nothing is left in the L2 cache, and "
        "the host has queued the whole call by the time it starts. Spread is the 20th to the 80th percentile. Back to "
        "back is the time per call as the host sees it, without the flush, for shapes where launching is what costs. "
        f"Bandwidth is the bytes the loss has to move, over the time, in per cent of {gpu['bandwidth'] / 1e9:,.0f} "
        f"GB/s ({gpu['bandwidth_source']}). Launches counts kernels, copies and fills.",
        "\n".join(f"- `{name}`: {text}" for name, text in DESCRIPTIONS.items()),
    ]
    if settings["quick"]:
        parts.append("**A quick run: too short for conclusions.**")
    for shape in dict.fromkeys(row["shape"] for row in result["rows"]):
        parts.append(f"## {shape.replace('x', ' x ')}")
        parts.append(table([row for row in result["rows"] if row["shape"] == shape]))
    if result.get("divergences"):
        parts.append("## The divergence alone\n\nEqual weights, no cross-entropy: what Liger-Kernel computes too.")
        parts.append(divergence_table(result["divergences"]))
    if result["skipped"]:
        parts.append("Left out:\n" + "\n".join(f"- {what}: {why}" for what, why in result["skipped"].items()))
    return "\n\n".join(parts) + "\n"


def table(rows: Iterable[Row]) -> str:
    """The implementations of one shape."""
    rows = list(rows)
    base = next((row["median"] for row in rows if row["implementation"] == "eager_minimal"), None)
    lines = [
        "| implementation | time (us) | best | spread | speed-up | bandwidth | launches | back to back (us) | error |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        cells = [
            f"`{row['implementation']}`",
            _microseconds(row["median"]),
            _microseconds(row["best"]),
            f"{_microseconds(row['p20'])} - {_microseconds(row['p80'])}",
            f"{base / row['median']:.3g}" if base else "-",
            f"{100 * row['bandwidth']:.0f}%",
            "-" if row["launches"] is None else str(row["launches"]),
            "-" if row["back_to_back"] is None else _microseconds(row["back_to_back"]),
            "-" if row["grad_error"] is None else f"{row['grad_error']:.0e}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def divergence_table(rows: Iterable[Row]) -> str:
    lines = ["| shape | implementation | time (us) | spread | error |", "|---|---|---:|---:|---:|"]
    for row in rows:
        spread = f"{_microseconds(row['p20'])} - {_microseconds(row['p80'])}"
        lines.append(f"| {row['shape'].replace('x', ' x ')} | `{row['implementation']}` | "
                     f"{_microseconds(row['median'])} | {spread} | {row['grad_error']:.0e} |")  # fmt: skip
    return "\n".join(lines)


def _microseconds(seconds: float) -> str:
    value = 1e6 * seconds
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"

"""The client update: python -m benchmarks.update [--quick] [--out FOLDER].

One local step with clipping and weight decay, for K clients of P parameters, against what PyTorch offers.  All
implementations of a shape take turns in random order, so that whatever else the machine does hits all of them alike.
`copy` is the physical floor: a plain copy that moves as many bytes as the step must (g and w once in, w once out; with
a linear term, that too).  Writes update.csv (a row for each setting and implementation) and update.json.
"""

from __future__ import annotations

import argparse
import csv
import gc
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedasd_fast.simulation.client.fused_update import local_step

from .loss import environment
from .results import summary

Call = Callable[[], object]
# An MLP of 64-128-64-10 and the like, the paper's CIFAR CNN, ResNet-18.
SIZES = {"13k": 13_000, "815k": 815_000, "11M": 11_000_000}
CLIENTS = (1, 50)
MAX_ARRAY_BYTES = 2**31  # bytes of one array: 50 clients of 11M parameters would need 9 GB in all
LR, CLIP, DECAY = 1e-6, 10.0, 1e-3
FIELDS = (
    "clients", "size", "method", "threads", "implementation", "best", "median", "p20", "p80", "rounds",
    "calls_per_turn", "times_fused", "times_copy", "gigabytes_a_second",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Case:
    w: Tensor  # [K, P]
    g: Tensor
    linear: Tensor | None  # FedDyn's

    @property
    def bytes_to_move(self) -> int:
        return (3 if self.linear is None else 4) * self.w.nbytes


def make_case(clients: int, size: int, method: str) -> Case:
    generator = torch.Generator().manual_seed(0)

    def normal() -> Tensor:
        return torch.randn(clients, size, generator=generator)

    return Case(normal(), normal(), normal() if method == "feddyn" else None)


def _fused(case: Case) -> Call:
    one = case.w.shape[0] == 1
    w, g, v = (t if t is None or not one else t[0] for t in (case.w.clone(), case.g, case.linear))
    return lambda: local_step(w, g, LR, linear=v, clip_norm=CLIP, decay=DECAY, implementation="fused")


def _reference(case: Case) -> Call:
    w = case.w.clone()
    return lambda: local_step(
        w, case.g, LR, linear=case.linear, clip_norm=CLIP, decay=DECAY, implementation="reference"
    )


def _in_place(case: Case) -> Call:
    """The least one would write by hand: no temporary of the size of w; the gradient is used up."""
    w, g = case.w.clone(), case.g.clone()

    def call() -> None:
        if case.linear is not None:
            g.add_(case.linear)
        g.mul_((CLIP / (torch.linalg.vector_norm(g, dim=-1, keepdim=True) + 1e-6)).clamp_(max=1.0))
        g.add_(w, alpha=DECAY)
        w.add_(g, alpha=-LR)

    return call


def _sgd(case: Case, **options: bool) -> Call:
    """A parameter a client, each clipped on its own."""
    parameters = [torch.nn.Parameter(row.clone()) for row in case.w]
    for parameter, g in zip(parameters, case.g, strict=True):
        parameter.grad = g.clone()
    optimizer = torch.optim.SGD(parameters, lr=LR, weight_decay=DECAY, **options)

    def call() -> None:
        if case.linear is not None:
            torch._foreach_add_([p.grad for p in parameters], list(case.linear))
        for parameter in parameters:
            torch.nn.utils.clip_grad_norm_([parameter], CLIP, foreach=True)
        optimizer.step()

    return call


def _copy(case: Case) -> Call:
    source = torch.ones(case.bytes_to_move // 8)  # half of the bytes are read, the other half written
    target = torch.zeros_like(source)
    return lambda: target.copy_(source)


IMPLEMENTATIONS: dict[str, Callable[[Case], Call]] = {
    "fused": _fused,
    "reference": _reference,
    "in_place": _in_place,
    "sgd_foreach": lambda case: _sgd(case, foreach=True),
    "sgd_fused": lambda case: _sgd(case, fused=True),
    "copy": _copy,
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.update", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smoke test: few rounds, the smallest size")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"), help="folder of the results")
    parser.add_argument("--seconds", type=float, default=3.0, help="time budget of a setting at one number of threads")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args(arguments)
    sizes = {"13k": SIZES["13k"]} if options.quick else SIZES
    rows: list[dict[str, Any]] = []
    for name, size in sizes.items():
        for clients in CLIENTS:
            if 4 * clients * size > MAX_ARRAY_BYTES:
                print(f"{clients} x {name}: left out, {4 * clients * size / 1e9:.1f} GB an array")
                continue
            for method in ("fedavg", "feddyn"):
                case = make_case(clients, size, method)
                for threads in options.threads:
                    torch.set_num_threads(threads)
                    measured = measure(case, 0.05 if options.quick else options.seconds)
                    found = list(
                        compared(case, measured, dict(clients=clients, size=size, method=method, threads=threads))
                    )
                    rows += found
                    print(line(name, found), flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "update.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    settings = dict(lr=LR, clip_norm=CLIP, decay=DECAY, dtype="float32", seconds=options.seconds, quick=options.quick)
    text = json.dumps({**environment(), "settings": settings}, indent=2, default=str)
    (options.out / "update.json").write_text(text + "\n")
    print(f"wrote {options.out / 'update.csv'} and {options.out / 'update.json'}")


def measure(case: Case, seconds: float) -> dict[str, tuple[int, list[float]]]:
    """Calls in a turn, and seconds a call of each turn."""
    calls = {name: prepare(case) for name, prepare in IMPLEMENTATIONS.items()}
    repeats = {name: max(1, round(2e-4 / min(_turn(call, 3) for _ in range(3)))) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    order, shuffle = list(calls), random.Random(0).shuffle
    gc.collect()
    gc.disable()
    try:
        end = time.perf_counter() + seconds
        while len(samples[order[0]]) < 5 or time.perf_counter() < end:
            shuffle(order)
            for name in order:
                calls[name]()  # else a turn of one call would start colder than a turn of many
                samples[name].append(_turn(calls[name], repeats[name]))
    finally:
        gc.enable()
    return {name: (repeats[name], samples[name]) for name in calls}


def _turn(call: Call, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def compared(case: Case, measured: dict[str, tuple[int, list[float]]], setting: dict[str, Any]) -> Any:
    """Ratios are of the best turns: on a machine that others use too, those are the least disturbed."""
    best = {name: min(samples) for name, (_, samples) in measured.items()}
    for name, (repeats, samples) in measured.items():
        yield dict(
            setting, implementation=name, **summary(samples), rounds=len(samples), calls_per_turn=repeats,
            times_fused=best[name] / best["fused"], times_copy=best[name] / best["copy"],
            gigabytes_a_second=case.bytes_to_move / best[name] / 1e9,
        )  # fmt: skip


def line(size: str, rows: list[dict[str, Any]]) -> str:
    by_name = {row["implementation"]: row for row in rows}
    fused = by_name["fused"]
    others = ", ".join(
        f"{name} {row['times_fused']:.2f}x" for name, row in by_name.items() if name not in ("fused", "copy")
    )
    spread = f"{1e6 * fused['best']:.1f} us (p20-p80 {1e6 * fused['p20']:.1f}-{1e6 * fused['p80']:.1f})"
    setting = f"{fused['clients']:2} x {size:4} {fused['method']}, {fused['threads']} thread(s)"
    return f"{setting}: fused {spread}, {fused['times_copy']:.2f} of a copy; {others}"


if __name__ == "__main__":
    main()

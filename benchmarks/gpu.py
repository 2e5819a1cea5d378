"""The loss benchmark on a GPU: python -m benchmarks.gpu [--quick] [--out FOLDER].

Writes results.md (a table for each shape) and results.json (the same numbers, machine, versions, settings).
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedasd_fast.kernels import loader

from . import divergences as plain
from .cases import QUICK_SHAPES, SHAPES, Case, make_case, shape_name
from .cuda import Graph, launches
from .gpu_report import bytes_moved, markdown, peak_bandwidth, table
from .gpu_timing import Timer, back_to_back, copy_bandwidth
from .implementations import IMPLEMENTATIONS, Call, minimal_objective, through_autograd
from .loss import environment, relative_error
from .results import summary

# Elements up to which a shape is also called back to back: with fewer, a launch costs more than the work.
SMALL_ELEMENTS = 100_000


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smoke test: few rounds, small shapes")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks-gpu"), help="folder of the results")
    parser.add_argument("--rounds", type=int, help="repetitions of every implementation")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.gpu needs a CUDA device, and torch sees none.")
    if "cuda" not in loader.devices:
        raise SystemExit(
            f"benchmarks.gpu needs CUDA kernels, but {loader.missing('cuda')}: build them with "
            "FORCE_CUDA=1 pip install --no-build-isolation -e ."
        )
    settings = {"quick": options.quick, "rounds": options.rounds or (5 if options.quick else 50), "dtype": "float32"}

    device = torch.device("cuda", torch.cuda.current_device())
    timer = Timer(device)
    gpu = describe(device, timer)
    skipped: dict[str, str] = {}
    rows: list[dict[str, Any]] = []
    divergences: list[dict[str, Any]] = []
    for shape in QUICK_SHAPES if options.quick else SHAPES:
        case = on_device(make_case(shape), device)
        measured = measure(case, timer, gpu["bandwidth"], settings["rounds"], skipped)
        if len(shape) == 2:  # Liger-Kernel knows no clients
            divergences += measure_divergences(case, timer, settings["rounds"], skipped)
        print(f"{shape_name(shape)}\n{table(measured)}", flush=True)
        rows += measured
        gc.collect()
        torch.cuda.empty_cache()  # graphs keep their memory apart; the largest shapes need it
    result = {"environment": environment(), "gpu": gpu, "settings": settings, "skipped": skipped, "rows": rows}
    result["divergences"] = divergences
    write(options.out, result)


def describe(device: torch.device, timer: Timer) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(device)
    peak = peak_bandwidth(properties)
    measured = copy_bandwidth(device)
    return {
        "name": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "clock": 1e3 * (getattr(properties, "clock_rate", 0) or 0) or None,  # Hz
        "cuda": torch.version.cuda,
        "l2_bytes": properties.L2_cache_size,
        "flush_bytes": timer.buffer.nbytes,
        "copy_bandwidth": measured,
        "bandwidth": peak or measured,
        "bandwidth_source": "theoretical: memory clock x bus width" if peak else "measured: a large copy",
    }


def on_device(case: Case, device: torch.device) -> Case:
    names = ("rows", "constant", "log_weight", "targets", "label_prior")
    cache = replace(case.cache, **{name: getattr(case.cache, name).to(device) for name in names})
    tensors = {name: getattr(case, name).to(device) for name in ("student", "teacher", "targets", "prior", "rows")}
    return Case(cache=cache, **tensors)


def _compiled_minimal(case: Case) -> Call:
    torch._dynamo.reset()  # keeps the next shape from counting as a recompilation
    return through_autograd(torch.compile(minimal_objective, dynamic=False), case)


def _copy(case: Case) -> Call:
    source = torch.zeros(bytes_moved(case, cached=False) // 2, dtype=torch.uint8, device=case.student.device)
    target = torch.empty_like(source)

    def call() -> None:
        target.copy_(source)

    return call


def _graph(prepare: Callable[[Case], Call]) -> Callable[[Case], Call]:
    return lambda case: Graph(prepare(case))


GPU_IMPLEMENTATIONS: dict[str, Callable[[Case], Call]] = {
    "eager": IMPLEMENTATIONS["eager"],
    "eager_minimal": IMPLEMENTATIONS["eager_minimal"],
    "compiled_minimal": _compiled_minimal,
    "eager_minimal_graph": _graph(IMPLEMENTATIONS["eager_minimal"]),
    "fused_autograd": IMPLEMENTATIONS["fused_autograd"],
    "loss_and_grad": IMPLEMENTATIONS["loss_and_grad"],
    "loss_and_grad_cached": IMPLEMENTATIONS["loss_and_grad_cached"],
    "loss_and_grad_graph": _graph(IMPLEMENTATIONS["loss_and_grad"]),
    "loss_and_grad_cached_graph": _graph(IMPLEMENTATIONS["loss_and_grad_cached"]),
    "copy": _copy,
}


def measure(case: Case, timer: Timer, bandwidth: float, rounds: int, skipped: dict[str, str]) -> list[dict[str, Any]]:
    """A row for each implementation."""
    truth = case.truth()
    calls: dict[str, Call] = {}
    errors: dict[str, tuple[float | None, ...]] = {}
    for name, prepare in GPU_IMPLEMENTATIONS.items():
        try:
            call = prepare(case)
            result = call()
        except Exception as error:
            if name != "compiled_minimal":  # only the compiler may be missing; a failure of anything else is a bug
                raise
            reason = next(iter(str(error).splitlines()), "")
            skipped[f"{shape_name(case.shape)} {name}"] = f"{type(error).__name__}: {reason}"
            continue
        calls[name] = call
        errors[name] = tuple(map(relative_error, result, truth)) if result else (None, None)
    del truth

    samples = timer.device_times(calls, rounds)
    small = case.student.numel() <= SMALL_ELEMENTS
    rows = []
    for name, call in calls.items():
        times = summary(samples[name])
        moved = bytes_moved(case, cached="cached" in name)
        row: dict[str, Any] = {"shape": shape_name(case.shape), "implementation": name, **times, "bytes": moved}
        row["bandwidth"] = moved / times["median"] / bandwidth
        row["launches"] = len(launches(call)) or None  # without CUPTI the profiler sees nothing
        row["back_to_back"] = statistics.median(back_to_back(call, 200, 7)) if small else None
        row["loss_error"], row["grad_error"] = errors[name]
        rows.append(row)
    return rows


def measure_divergences(case: Case, timer: Timer, rounds: int, skipped: dict[str, str]) -> list[dict[str, Any]]:
    """Ours beside eager PyTorch and Liger-Kernel, where that is installed."""
    calls: dict[str, Call] = {}
    errors: dict[str, float] = {}
    for name in plain.OBJECTIVES:
        try:
            calls[name] = plain.prepare(name, case)
        except ImportError as error:
            skipped[f"{shape_name(case.shape)} {name}"] = f"pip install liger-kernel: {error}"
            continue
        result = calls[name]()
        assert result
        errors[name] = relative_error(result[1], plain.truth(name, case))
    samples = timer.device_times(calls, rounds)
    return [
        {"shape": shape_name(case.shape), "implementation": name, **summary(samples[name]), "grad_error": errors[name]}
        for name in calls
    ]


def write(folder: Path, result: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(result, indent=2, default=str) + "\n")
    (folder / "results.md").write_text(markdown(result))
    print(f"wrote {folder / 'results.md'} and {folder / 'results.json'}")


if __name__ == "__main__":
    main()

"""The loss benchmark: python -m benchmarks.loss [--quick] [--out FOLDER].

All implementations of a shape take turns, in an order drawn anew each round, so that whatever else the machine does
hits all of them alike.  A turn of a fast implementation is several calls, so that the clock's own cost does not show.
Writes loss.csv (a row for each shape, thread number and implementation) and loss.json (machine, versions, settings).
"""

from __future__ import annotations

import argparse
import csv
import gc
import json
import math
import os
import platform
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from cpuinfo import get_cpu_info  # type: ignore[import-untyped]  # comes with pytest-benchmark

import fedasd_fast as fa

from .cases import (
    ASD_WEIGHT,
    MEMORY_SHAPES,
    QUICK_MEMORY_SHAPES,
    QUICK_SHAPES,
    SHAPES,
    TEMPERATURE,
    Case,
    make_case,
    shape_name,
)
from .implementations import IMPLEMENTATIONS, Call
from .memory import extra_memory
from .results import DISTURBED_CORES, summary

FIELDS = (
    "shape", "threads", "implementation", "best", "median", "p20", "p80", "rounds", "calls_per_turn",
    "others_cpu", "loss_error", "grad_error", "extra_memory",
)  # fmt: skip
TURN_SECONDS = 2e-4
# Calls longer than this find nothing of their last turn in the caches: a warm call would only cost time.
WARM_SECONDS = 0.1


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loss", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smoke test: few rounds, small shapes")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"), help="folder of the results")
    parser.add_argument("--seconds", type=float, help="time budget of a shape at one number of threads")
    parser.add_argument("--rounds", type=int, help="fewest rounds of a shape, whatever they take")
    parser.add_argument("--attempts", type=int, default=3, help="tries of a shape that others disturb")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args(arguments)
    settings = {
        "quick": options.quick,
        "threads": options.threads,
        "seconds": options.seconds or (0.3 if options.quick else 4.0),
        "rounds": options.rounds or (3 if options.quick else 7),
        "attempts": 1 if options.quick else options.attempts,
        "turn_seconds": TURN_SECONDS,
        "asd_weight": ASD_WEIGHT,
        "temperature": TEMPERATURE,
        "dtype": "float32",
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
    }
    skipped: dict[str, str] = {}
    began = time.perf_counter()
    rows: list[dict[str, Any]] = []
    for shape in QUICK_SHAPES if options.quick else SHAPES:
        case = make_case(shape)
        truth = case.truth()
        for threads in options.threads:
            torch.set_num_threads(threads)
            rows += _measure(case, truth, threads, settings, skipped)
            print(f"{shape_name(shape)}, {threads} thread(s): done", flush=True)
    # After the timings, which have left compiled code on disk for the processes that measure memory.
    memory = _memory(QUICK_MEMORY_SHAPES if options.quick else MEMORY_SHAPES, max(options.threads), skipped)
    for row in rows:
        row["extra_memory"] = memory.get((row["shape"], row["implementation"]), "")
    settings["total_seconds"] = round(time.perf_counter() - began, 1)
    _write(options.out, rows, {**environment(), "settings": settings, "skipped": skipped})


def _memory(shapes: tuple[tuple[int, ...], ...], threads: int, skipped: dict[str, str]) -> dict[tuple[str, str], float]:
    result = {}
    for shape in shapes:
        for name in IMPLEMENTATIONS:
            if name == "copy":
                continue
            try:
                result[shape_name(shape), name] = round(extra_memory(name, shape, threads), 3)
            except RuntimeError as error:
                skipped[f"memory {shape_name(shape)} {name}"] = str(error)
        print(f"memory of {shape_name(shape)}: done", flush=True)
    return result


def _measure(
    case: Case,
    truth: tuple[torch.Tensor, torch.Tensor],
    threads: int,
    settings: dict[str, Any],
    skipped: dict[str, str],
) -> Iterator[dict[str, Any]]:
    calls: dict[str, Call] = {}
    errors: dict[str, tuple[float, float] | tuple[str, str]] = {}
    for name, prepare in IMPLEMENTATIONS.items():
        try:
            call = prepare(case)
            result = call()
        except Exception as error:
            if name != "compiled":  # only the compiler may be missing; a failure of anything else is a bug
                raise
            reason = next(iter(str(error).splitlines()), "")
            skipped[f"{shape_name(case.shape)} {threads} {name}"] = f"{type(error).__name__}: {reason}"
            continue
        calls[name] = call
        errors[name] = (
            ("", "") if result is None else (relative_error(result[0], truth[0]), relative_error(result[1], truth[1]))
        )

    # Tries again while others keep the machine busy, and keeps the quietest try.
    busy = math.inf
    for _ in range(settings["attempts"]):
        start, others = time.perf_counter(), _others()
        measured = _interleaved(calls, settings["seconds"], settings["rounds"])
        used = max(0.0, round((_others() - others) / (time.perf_counter() - start), 2))
        if used < busy:
            busy, (repeats, samples) = used, measured
        if busy <= DISTURBED_CORES:
            break
    for name in IMPLEMENTATIONS:
        row: dict[str, Any] = dict.fromkeys(FIELDS, "")
        row.update(shape=shape_name(case.shape), threads=threads, implementation=name, others_cpu=busy)
        if name in calls:
            row.update(summary(samples[name]))
            row.update(rounds=len(samples[name]), calls_per_turn=repeats[name])
            row["loss_error"], row["grad_error"] = errors[name]
        yield row


def relative_error(value: torch.Tensor, truth: torch.Tensor) -> float:
    return ((value.double() - truth).abs().max() / truth.abs().max()).item()


def _interleaved(calls: dict[str, Call], seconds: float, rounds: int) -> tuple[dict[str, int], dict[str, list[float]]]:
    """Calls in a turn, and seconds a call of each turn."""
    fastest = {name: _fastest(call) for name, call in calls.items()}
    repeats = {name: max(1, round(TURN_SECONDS / seconds)) for name, seconds in fastest.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    shuffle = random.Random(0).shuffle
    gc.collect()
    gc.disable()
    try:
        end = time.perf_counter() + seconds
        done = 0
        while done < rounds or time.perf_counter() < end:
            shuffle(order)
            for name in order:
                if fastest[name] < WARM_SECONDS:
                    calls[name]()  # else a turn of one call would start colder than a turn of many
                samples[name].append(_turn(calls[name], repeats[name]))
            done += 1
    finally:
        gc.enable()
    return repeats, samples


def _fastest(call: Call) -> float:
    fastest = min(_turn(call, 1) for _ in range(3))
    return fastest if fastest > TURN_SECONDS else min(_turn(call, 20) for _ in range(5))


def _turn(call: Call, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def _others() -> float:
    """Processor seconds that everything else on the machine has used so far, including what the hypervisor took.

    0 where the system does not tell.
    """
    try:
        ticks = [int(x) for x in Path("/proc/stat").read_text().split(maxsplit=9)[1:9]]
    except OSError:
        return 0.0
    user, nice, system, _idle, _iowait, irq, softirq, steal = ticks
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK") - time.process_time()


def environment() -> dict[str, Any]:
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout if compiler else ""
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "machine": {"cpu": get_cpu_info().get("brand_raw", ""), "cores": os.cpu_count(), "os": platform.platform()},
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "compiler": next(iter(version.splitlines()), None),
            "fedasd_fast": fa.__version__,
            "build_info": fa.build_info(),
        },
    }


def _write(folder: Path, rows: list[dict[str, Any]], environment: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "loss.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    (folder / "loss.json").write_text(json.dumps(environment, indent=2, default=str) + "\n")
    print(f"wrote {folder / 'loss.csv'} and {folder / 'loss.json'}")


if __name__ == "__main__":
    main()

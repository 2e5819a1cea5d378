"""python -m benchmarks.peers W1 [--rounds 5] [--repeats 3] [--only ours-serial,pfl] [--epochs 5]

W1, W2 and W3 are in workload.py, contenders and their settings in contenders.py.  All of them are started, each trains
a round to warm up, and then they train blocks of rounds in turns.  Nothing but training is timed: no start-up and no
evaluation.  The table goes to stdout, the raw figures to build/bench/peers-W1.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from .contenders import CORES, NOTES, contenders
from .harness import ROOT, Measured, measure
from .setup import VENVS
from .table import table
from .workload import WORKLOADS, Workload, build_model, save_data


def step_flops(workload: Workload) -> int:
    """Of a local step: forward and backward of the model that learns.  A teacher's passes do not count."""
    model, x = build_model(workload), torch.zeros(workload.batch, *workload.shape)
    with FlopCounterMode(display=False) as counter:
        F.cross_entropy(model(x), torch.zeros(len(x), dtype=torch.long)).backward()
    return int(counter.get_total_flops())


def machine() -> str:
    cpus = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return f"{cpus[0].partition(': ')[2] if cpus else platform.processor()}, {CORES} cores, {platform.platform()}"


def heading(name: str, workload: Workload, results: list[Measured], gemm: float, load: float) -> str:
    versions = {key: value for r in results for key, value in r.versions.items()}
    listed = ", ".join(f"{key} {value}" for key, value in sorted(versions.items()))
    w, present = workload, {r.contender.name for r in results}
    notes = [f"- {key}: {text}" for key, text in NOTES.items() if key in present]
    return "\n".join([
        f"**{name}: {w.title}**; {w.clients} clients x {w.samples} samples of {list(w.shape)}, {w.classes} classes, "
        f"{w.cohort} a round, {w.epochs} local epochs, batch {w.batch}: {w.steps} steps a round.\n",
        f"Made by `python -m benchmarks.peers {' '.join(sys.argv[1:])}` on {machine()}; Python "
        f"{platform.python_version()}, {listed}. GEMM rate {gemm / 1e9:.0f} GFLOP/s ({CORES} processes of one thread "
        f"at once); load average at the start {load:.1f}. Peak memory: VmHWM of all processes, added up; shared pages, "
        "such as the mapped data, count in each.\n",
        *notes, "",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--rounds", type=int, default=5, help="in a block")
    parser.add_argument("--repeats", type=int, default=3, help="blocks of each contender")
    parser.add_argument("--only", help="contenders, separated by commas: ours-serial,plain:1 thread")
    parser.add_argument("--epochs", type=int, help="local epochs, instead of the workload's")
    parser.add_argument("--venvs", type=Path, default=VENVS, help="where pfl and flower are installed")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench")
    options = parser.parse_args()
    workload = WORKLOADS[options.workload]
    workload = replace(workload, epochs=options.epochs or workload.epochs)
    try:
        todo = contenders(workload, options.venvs.absolute(), set(options.only.split(",")) if options.only else None)
    except ValueError as error:
        parser.error(str(error))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the contenders too, some of which are halted
    load = os.getloadavg()[0]
    logs = options.out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        save_data(workload, Path(folder))
        results, rates = measure(workload, todo, Path(folder), logs, options.rounds, options.repeats)
    gemm, flops = 1e9 * max(rates), step_flops(workload)
    print(heading(options.workload, workload, results, gemm, load))
    print(table(workload, results, flops, gemm))
    raw = {"workload": asdict(workload), "machine": machine(), "load": load, "gemm_gflops": rates, "step_flops": flops,
           "results": [asdict(r) for r in results]}  # fmt: skip
    (options.out / f"peers-{options.workload}.json").write_text(json.dumps(raw, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""python -m benchmarks.first_gpu [--quick] [--out build/gpu-report]: what `make gpu-report` runs after the build.

Writes gpu-report.json and gpu-report.html, to be attached to an issue, and a log for each step.  --rehearse runs the
steps without a GPU, as far as that goes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

import fedasd_fast as fa

from .page import page
from .predictions import beside_predictions
from .steps import run, steps

FORMAT = 1


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/gpu-report"))
    parser.add_argument("--quick", action="store_true", help="small shapes, few repetitions")
    parser.add_argument("--rehearse", action="store_true", help="without a GPU: what needs one fails or is skipped")
    parser.add_argument("--commit", default="", help="of the code, where there is no git checkout")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available() and not options.rehearse:
        raise SystemExit("the report needs a CUDA device, and torch sees none; --rehearse runs the steps without one")
    folder = options.out.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {
        "format": FORMAT, "rehearsal": not torch.cuda.is_available(), "quick": options.quick,
        "machine": machine(options.commit), "steps": [], "loss": None, "simulator": None,
    }  # fmt: skip
    environment = dict(os.environ, FEDASD_GPU_REPORT="1")
    for step in steps(folder, options.quick):
        print(f"== {step.name}", flush=True)
        outcome = run(step, folder, environment)
        print("   " + ": ".join(filter(None, (outcome["status"], outcome.get("reason")))), flush=True)
        report["steps"].append(outcome)
        report |= measurements(folder)
        write(folder, report)  # after every step: what is measured is kept, whatever happens next
    print(f"attach to an issue: {folder / 'gpu-report.json'} and {folder / 'gpu-report.html'}")
    return int(any(step["status"] == "failed" for step in report["steps"]))


def machine(commit: str) -> dict[str, Any]:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "a machine without a GPU"
    return {
        "gpu": gpu, "driver": said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "nvcc": next((line for line in said("nvcc", "--version").splitlines() if "release" in line), ""),
        "torch": torch.__version__, "cuda_of_torch": torch.version.cuda, "python": platform.python_version(),
        "system": platform.platform(), "fedasd_fast": fa.__version__,
        "commit": commit or said("git", "rev-parse", "HEAD"), "build": fa.build_info(),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }  # fmt: skip


def said(*command: str) -> str:
    """Standard output of a command; nothing if it is missing or fails."""
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def measurements(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if (loss := folder / "loss" / "results.json").exists():
        result = json.loads(loss.read_text())
        found["loss"] = result | {"beside_predictions": beside_predictions(result)}
    if (simulator := folder / "simulator.json").exists():
        found["simulator"] = json.loads(simulator.read_text())
    return found


def write(folder: Path, report: dict[str, Any]) -> None:
    (folder / "gpu-report.json").write_text(json.dumps(report, indent=1, default=str) + "\n")
    (folder / "gpu-report.html").write_text(page(report))


if __name__ == "__main__":
    sys.exit(main())

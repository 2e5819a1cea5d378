"""The frameworks that are compared, and their settings: several each, because the fastest one is not known."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .workload import Workload

CORES = os.cpu_count() or 1
ALL_CORES = sorted({1, CORES})
THREADS = [(f"{n} thread{'s' * (n > 1)}", {"threads": n}) for n in ALL_CORES]

# Name: module, venv (none: this one), settings with their labels.
CONTENDERS: dict[str, tuple[str, str | None, list[tuple[str, dict[str, Any]]]]] = {
    "ours-serial": ("ours", None, [(label, {"executor": "serial", **setting}) for label, setting in THREADS]),
    "ours-stacked": ("ours", None, [(label, {"executor": "stacked", **setting}) for label, setting in THREADS]),
    "ours-processes": (
        "ours", None, [
            (f"{CORES} workers", {"executor": "processes", "workers": CORES, "threads": 1}),
            (f"{CORES} workers, 25 at once",
             {"executor": "processes", "workers": CORES, "threads": 1, "clients_at_once": 25}),
        ],
    ),
    "ours-auto": ("ours", None, [("as it chooses", {})]),
    "plain": ("plain", None, THREADS),
    "authors": ("plain", None, THREADS),
    "pfl": ("pfl_research", "pfl", [*THREADS, (f"{CORES} workers", {"threads": 1, "workers": CORES})]),
    "flower": ("flower", "flower", [(f"num_cpus={n}", {"num_cpus": n}) for n in ALL_CORES]),
    "blazefl": (
        "blazefl", "blazefl", [
            *((label, {"pool": "serial", **setting}) for label, setting in THREADS),
            *((f"pool of {CORES} {pool}", {"pool": pool, "workers": CORES, "threads": 1})
              for pool in ("threads", "processes")),
        ],
    ),
    "fluke": ("fluke", "fluke", THREADS),
}  # fmt: skip
NOTES = {
    "pfl": "does not shuffle a client's samples",
    "flower": "actors keep model and data between messages; no evaluation; logging as it is by default",
    "blazefl": "trainers of our own on its pools, with the plain loop's step: its FedAvg neither clips nor decays",
    "fluke": "trains one client after another",
    "authors": "plain loop; the teacher's pass in every step, eager loss",
}


@dataclass(frozen=True)
class Contender:
    name: str
    label: str
    module: str
    python: str
    setting: dict[str, Any]

    @property
    def ours(self) -> bool:
        return self.name.startswith("ours")

    @property
    def threads(self) -> int:
        """For the environment; Flower's actors have one for each of their CPUs."""
        return int(self.setting.get("threads") or self.setting.get("num_cpus", CORES))


def contenders(workload: Workload, venvs: Path, only: set[str] | None = None) -> list[Contender]:
    """`only`: names (plain), or names with a setting (plain:1 thread)."""
    without = {"plain", "pfl", "flower", "blazefl", "fluke"} if workload.asd else {"authors"}
    known = {name: {name, *(f"{name}:{label}" for label, _ in settings)} for name, (*_, settings) in CONTENDERS.items()}
    if unknown := (only or set()).difference(*known.values()):
        raise ValueError(f"unknown contenders {sorted(unknown)}; expected some of {', '.join(CONTENDERS)}")
    return [
        Contender(name, label, module, str(venvs / venv / "bin" / "python") if venv else sys.executable, setting)
        for name, (module, venv, settings) in CONTENDERS.items()
        for label, setting in settings
        if name not in without and (only is None or only & {name, f"{name}:{label}"})
    ]

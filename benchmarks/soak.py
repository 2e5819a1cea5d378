"""Runs many short rounds and checks that nothing grows: memory, open files, time per round.

    python -m benchmarks.soak                                    10,000 rounds; some minutes
    python -m benchmarks.soak --rounds 500 --executor processes

The first tenth of the rounds is warm-up.  What is measured after it is compared with what is measured at the end: the
resident memory of this process and its children, their open files, and the median time of a round.  Checkpoints are
written all along, and clients keep state.  Exits with 1 if something grew.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedasd_fast.callbacks import Callback
from fedasd_fast.config import Config, from_dict
from fedasd_fast.simulation import simulate

MORE_BYTES = 16 << 20  # that memory may grow by: caches of the allocator, and the rows of metrics that a Result keeps
BYTES_PER_ROUND = 4096  # of those rows
SLOWER = 1.5  # times the median of a round: the machine may have other work


@dataclass(frozen=True)
class Usage:
    memory: int  # resident bytes, of all processes together
    files: int  # open, of all processes together


@dataclass
class Watch(Callback):
    """Measures after the warm-up, and at the end."""

    rounds: int
    seconds: list[float] = field(default_factory=list)
    first: Usage | None = None
    last: Usage | None = None

    def on_round(self, metrics: dict[str, Any]) -> None:
        self.seconds.append(metrics["seconds"])
        if metrics["round"] == self.rounds // 10:
            self.first = usage()
        elif metrics["round"] == self.rounds:
            self.last = usage()

    def problems(self) -> list[str]:
        assert self.first is not None
        assert self.last is not None
        found, part = [], self.rounds // 10
        allowed = MORE_BYTES + BYTES_PER_ROUND * self.rounds
        if (grown := self.last.memory - self.first.memory) > allowed:
            found.append(f"memory grew by {grown / 1e6:.1f} MB, more than {allowed / 1e6:.1f}")
        if self.last.files > self.first.files:
            found.append(f"{self.last.files} open files, {self.first.files} after the warm-up")
        early, late = (statistics.median(part) for part in (self.seconds[part : 2 * part], self.seconds[-part:]))
        if late > SLOWER * early:
            found.append(f"a round takes {late * 1e3:.2f} ms, it took {early * 1e3:.2f} after the warm-up")
        return found

    def __str__(self) -> str:
        assert self.first is not None
        assert self.last is not None
        part = self.rounds // 10
        return "\n".join(
            [
                f"{self.rounds:,} rounds        after the warm-up -> at the end",
                f"  memory, MB         {self.first.memory / 1e6:.1f} -> {self.last.memory / 1e6:.1f}",
                f"  open files         {self.first.files} -> {self.last.files}",
                f"  ms a round         {statistics.median(self.seconds[part : 2 * part]) * 1e3:.2f} -> "
                f"{statistics.median(self.seconds[-part:]) * 1e3:.2f}",
            ]
        )


def usage() -> Usage:
    """Of this process and those that it started (Linux)."""
    memory = files = 0
    for process in family(os.getpid()):
        try:
            pages = int((process / "statm").read_text().split()[1])
            files += len(os.listdir(process / "fd"))
        except (FileNotFoundError, ProcessLookupError, PermissionError):  # it has ended
            continue
        memory += pages * os.sysconf("SC_PAGE_SIZE")
    return Usage(memory, files)


def family(pid: int) -> list[Path]:
    """The process and all below it."""
    own = Path("/proc") / str(pid)
    try:
        children = [int(word) for task in (own / "task").iterdir() for word in (task / "children").read_text().split()]
    except FileNotFoundError:  # it has ended
        return []
    return [own, *(process for child in children for process in family(child))]


def soak_config(rounds: int, executor: str, out: Path) -> Config:
    return from_dict(
        {
            "name": "soak", "method": "feddyn+asd", "rounds": rounds, "executor": executor, "out": str(out),
            "synthetic": {"shape": [8], "classes": 4, "samples_per_client": 10, "test_samples": 20},
            "model_args": {"hidden": [8]}, "clients": 50, "participation": 0.1, "local_epochs": 1, "batch_size": 10,
            "eval_every": 10, "checkpoint_every": 50, "threads": 1, "workers": 2 if executor == "processes" else 0,
        }
    )  # fmt: skip


def soak(rounds: int, executor: str, out: Path) -> Watch:
    watch = Watch(rounds)
    simulate(soak_config(rounds, executor, out), callbacks=[watch])
    return watch


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10_000, help="at least 100 (default: %(default)s)")
    parser.add_argument("--executor", default="serial", choices=("serial", "stacked", "processes"))
    options = parser.parse_args(argv)
    if options.rounds < 100:
        parser.error(f"--rounds {options.rounds}; expected at least 100")
    with tempfile.TemporaryDirectory() as folder:
        watch = soak(options.rounds, options.executor, Path(folder) / "run")
    print(watch)
    problems = watch.problems()
    for problem in problems:
        print(f"grown: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

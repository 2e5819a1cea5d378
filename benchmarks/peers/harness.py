"""Starts the contenders and lets them train in turns: while one trains, all processes of the others are suspended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..processes import peak_memory, send, tree
from .contenders import CORES, Contender
from .gemm import gemm_rate
from .spec import Spec
from .workload import Workload

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Measured:
    contender: Contender
    versions: dict[str, str] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)  # of each round
    updates: int = 0
    steps: int = 0
    loss: float = float("nan")  # on the test set, after all rounds
    memory: int = 0
    problem: str = ""  # why there is nothing else


class Child:
    """A contender's process.  It is suspended whenever it is not its turn."""

    def __init__(self, contender: Contender, workload: Workload, folder: Path, log: Path) -> None:
        self.measured, self._log = Measured(contender), log
        self._process: subprocess.Popen[str] | None = None
        if not Path(contender.python).exists():
            self.measured.problem = f"{contender.python} is missing: python -m benchmarks.peers.setup"
            return
        spec = Spec(workload, str(folder), contender.setting)
        variables = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(contender.threads))
        self._process = subprocess.Popen(
            [contender.python, "-m", f"benchmarks.peers.{contender.module}", spec.to_argument()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log.open("w"), text=True,
            cwd=ROOT, env={**os.environ, **variables, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        answer = self._answer()
        self.measured.versions = answer.get("versions", {})
        self._halt()

    def run(self, rounds: int) -> None:
        if self._process is None:
            return
        assert self._process.stdin
        send(self._process.pid, signal.SIGCONT)
        self._process.stdin.write(json.dumps({"rounds": rounds}) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if not answer:
            return
        measured = self.measured
        measured.seconds += answer["seconds"]
        measured.updates += answer["updates"]
        measured.steps += answer["steps"]
        measured.loss = answer["loss"]
        measured.memory = max(measured.memory, peak_memory(self._process.pid))
        self._halt()

    def end(self, patience: float = 20.0) -> None:
        """Ray takes a while to clean up; processes that are left after that are killed."""
        if self._process is None:
            return
        process, self._process = self._process, None
        send(process.pid, signal.SIGCONT)
        family = tree(process.pid)
        assert process.stdin
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
        for member in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process
        assert self._process.stdout
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {}
        if "seconds" in answer:
            return answer
        self.measured.problem = (
            answer.get("unavailable") or f"stopped with code {self._process.wait()}; see {self._log}"
        )
        self.end()
        return {}

    def _halt(self) -> None:
        if self._process:
            send(self._process.pid, signal.SIGSTOP)


def measure(
    workload: Workload, contenders: Sequence[Contender], folder: Path, logs: Path, rounds: int, repeats: int
) -> tuple[list[Measured], list[float]]:
    """What each did, and the rate of matrix multiplication (GFLOP/s) before each repeat."""
    children: list[Child] = []
    rates: list[float] = []
    try:
        for contender in contenders:
            print(f"starting {contender.name}, {contender.label}", file=sys.stderr)
            log = logs / f"{contender.name}-{contender.label.replace(' ', '-')}.log"
            children.append(Child(contender, workload, folder, log))
        for repeat in range(repeats):
            rates.append(gemm_rate(CORES))
            for child in children:
                print(f"repeat {repeat + 1}: {child.measured.contender.name}, {child.measured.contender.label}",
                      file=sys.stderr)  # fmt: skip
                child.run(rounds)
    except BaseException:
        for child in children:
            child.end(patience=0)
        raise
    for child in children:
        child.end()
    return [child.measured for child in children], rates

"""The steps of the report: each a command of its own, so that one that crashes loses nothing of the others."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
# Every team size, one block and several blocks a client, raw and cached teachers, odd alignments: docs/kernels.md.
SUBSET = "any_memory_layout or ignored_rows or test_kernel_builds or (many_rows and not 2000)"
SANITIZER = "compute-sanitizer"
FOUND_SOMETHING = 86  # its exit code, apart from pytest's own
KEPT_LINES = 40  # of a log, in the report
PER_TOOL_SECONDS = 3600


@dataclass(frozen=True)
class Step:
    name: str
    command: list[str]
    needs: str = ""  # a program on PATH
    environment: tuple[tuple[str, str], ...] = ()
    counts: Path | None = None  # JUnit file with the numbers of tests


def steps(folder: Path, quick: bool) -> list[Step]:
    counts = folder / "tests-gpu.xml"
    module = [sys.executable, "-m"]
    short = ["--quick"] if quick else []
    return [
        Step("tests/gpu", [*PYTEST, "tests/gpu", "-q", "-rs", f"--junitxml={counts}"], counts=counts),
        *(sanitizer(tool) for tool in ("memcheck", "racecheck", "synccheck")),
        Step("loss", [*module, "benchmarks.gpu", "--out", str(folder / "loss"), *short]),
        Step("simulator", [*module, "benchmarks.gpu_simulator", "--out", str(folder / "simulator.json"), *short]),
    ]


def sanitizer(tool: str) -> Step:
    report = ["--racecheck-report", "all"] if tool == "racecheck" else []
    watched = [SANITIZER, "--error-exitcode", str(FOUND_SOMETHING), "--kernel-regex", "kns=fedasd", "--tool", tool]
    return Step(
        f"{SANITIZER} {tool}",
        [*watched, *report, *PYTEST, "-x", "tests/gpu", "-k", SUBSET],
        needs=SANITIZER,
        environment=(("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),),  # an overrun then leaves its allocation
    )


def run(step: Step, folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    """What became of a step: passed, failed or not run, with the end of its log."""
    outcome: dict[str, Any] = {"name": step.name, "command": " ".join(step.command)}
    if step.needs and shutil.which(step.needs) is None:
        return outcome | {"status": "not run", "reason": f"{step.needs} is not on PATH"}
    log = folder / f"{step.name.replace('/', '-').replace(' ', '-')}.log"
    began = time.monotonic()
    with log.open("w") as output:
        try:
            code = subprocess.run(
                step.command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env=environment | dict(step.environment), timeout=PER_TOOL_SECONDS,
            ).returncode  # fmt: skip
            reason = "" if code == 0 else why(step, code)
        except subprocess.TimeoutExpired:
            reason = f"stopped after {PER_TOOL_SECONDS} s"
    outcome |= {"status": "failed" if reason else "passed", "seconds": round(time.monotonic() - began, 1)}
    counts = counted(step.counts) if step.counts else {}
    if counts and not reason and not counts["tests"]["passed"]:
        outcome["status"], reason = "not run", "every test was skipped"
    tail = log.read_text(errors="replace").splitlines()[-KEPT_LINES:]
    if outcome["status"] == "failed" and tail:
        reason += f": {tail[-1]}"
    return outcome | ({"reason": reason} if reason else {}) | {"log": log.name, "last_lines": tail} | counts


def why(step: Step, code: int) -> str:
    if step.needs == SANITIZER and code == FOUND_SOMETHING:
        return "the tool found something"
    return f"exit code {code}" if code > 0 else f"killed by signal {-code}"


def counted(junit: Path) -> dict[str, Any]:
    """Passed, failed and skipped tests, and why they were skipped; nothing if pytest did not get so far."""
    if not junit.exists():
        return {}
    suites = list(ElementTree.parse(junit).getroot().iter("testsuite"))
    total, bad, skipped = (
        sum(int(suite.get(key, 0)) for suite in suites for key in keys)
        for keys in (("tests",), ("failures", "errors"), ("skipped",))
    )
    reasons = {element.get("message", "") for suite in suites for element in suite.iter("skipped")}
    return {"tests": {"passed": total - bad - skipped, "failed": bad, "skipped": skipped}, "skips": sorted(reasons)}

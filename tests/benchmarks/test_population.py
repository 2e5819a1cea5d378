from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import population
from benchmarks.population import Case
from benchmarks.processes import peak_memory, tree

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")


def test_cases_run_in_processes_of_their_own(tmp_path: Path) -> None:
    changes = {"synthetic": {"shape": [4]}, "model_args": {"hidden": [4]}}
    cases = [Case(method, 1_000_000, 1_000) for method in population.METHODS]
    for case in cases:
        population.measure(case, 3, changes)
        assert case.best > 0
        assert 50e6 < case.memory[0] < 1.5e9
    lines = population.table(cases).splitlines()
    assert len(lines) == 4
    assert "| feddyn | 1,000,000 | 1,000 |" in lines[3]
    population.draw(cases, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_memory_of_children_counts() -> None:
    code = "import sys; held = bytearray(b'1') * 300_000_000; print(flush=True); sys.stdin.read()"
    before = peak_memory(os.getpid())
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        assert process.pid in tree(os.getpid())
        assert peak_memory(os.getpid()) - before > 300e6
        process.stdin.close()
    assert tree(os.getpid())[0] == os.getpid()


def test_table_has_the_spread() -> None:
    case = Case("fedavg", 10, 5, seconds=torch.linspace(1, 2, 11).tolist(), start=[0.5], memory=[3_000_000])
    assert "| 1.0000 | 1.5000 | 1.1400 - 1.8600 | 3 | 0.5 |" in population.table([case])

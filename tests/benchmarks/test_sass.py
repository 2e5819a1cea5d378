"""What the machine code is said to do, by a loop written by hand and by the kernels themselves."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.sass import LIMITS, WIDE, Counted, Pass, kernels, loops, nvdisasm, path, read, table, waits

ROOT = Path(__file__).parents[2]

# Two wide loads, both used after both were issued; then the same with a use in between.
LOOP = """
.text.loop:
        /*0000*/                   MOV R1, R2 ;
.L_x_1:
        /*0010*/                   LDG.E.128 R4, [R2.64] ;
        /*0020*/               {}
        /*0030*/                   LDG.E.128 R8, [R2.64+0x10] ;
        /*0040*/                   FADD R12, R4, R8 ;
        /*0050*/                   STG.E.128 [R2.64], R12 ;
        /*0060*/               @P0 BRA `(.L_x_1) ;
        /*0070*/                   EXIT ;
"""


@pytest.mark.parametrize(("between", "count", "most"), [("NOP ;", 1, 2), ("FADD R13, R4, R4 ;", 2, 1)])
def test_waits_of_a_loop(between, count, most):
    code = kernels(LOOP.replace("{}", between))["loop"]
    ((start, body),) = loops(code)
    taken = path(code, start, body, WIDE[4])
    assert taken == list(range(1, 7))
    assert waits(code, taken, WIDE[4]) == (count, most)


@pytest.fixture(scope="module")
def counted():
    """The main kernels for all four architectures."""
    tool = nvdisasm()
    if not tool or not shutil.which("nvcc"):
        pytest.skip("no nvcc or no nvdisasm (pip install nvidia-cuda-nvdisasm)")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "sass", "CUDA=build/cuda-test", f"PYTHON={sys.executable}"]
    done = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [c for path in sorted((ROOT / "build/cuda-test").glob("main_kernels-sm*.cubin")) for c in read(path, tool)]
    assert table([c for c in found if c.arch == "80"]).splitlines()[2] in done.stdout
    return found


def test_every_main_kernel_is_counted(counted):
    assert sorted((c.kernel, c.arch) for c in counted) == sorted(
        (kernel, arch) for kernel in LIMITS for arch in ("80", "90", "100", "120")
    )
    for c in counted:
        moved = [(p.wide_loads, p.wide_stores) for p in c.passes]
        # The teacher's softmax (raw), then student and teacher together; a long row's student is read once before.
        teacher = "raw" in c.kernel and c.arch in ("80", "90")
        assert len(moved) == teacher + 1 + ("block" in c.kernel), c
        assert moved[-1][1] > 0, c
        assert moved[-1][0] >= 2 * moved[-1][1], c


def test_every_main_kernel_keeps_its_limits(counted):
    assert [text for c in counted for text in c.broken()] == []


def test_a_broken_limit_is_named():
    few = Pass("cached kl, f32 rows, block a row", "80", 4, 0, 1, 9, 1600, 16)
    c = Counted(few.kernel, few.arch, (few,), 3)
    assert len(c.broken()) == 4
    assert c.broken()[0] == "cached kl, f32 rows, block a row, sm_80: 1 loads in flight, not 4"

"""What the machine code is said to do, by a loop written by hand and by the kernels themselves."""

import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.sass import WIDE, kernels, loops, nvdisasm, path, read, table, waits

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


def test_rows_are_loaded_before_they_are_waited_for(tmp_path):
    tool = nvdisasm()
    if not tool or not shutil.which("nvcc"):
        pytest.skip("no nvcc or no nvdisasm (pip install nvidia-cuda-nvdisasm)")
    cubin = tmp_path / "cached_f32-sm80.cubin"
    source = ROOT / "csrc/cuda/cached_f32.cu"
    subprocess.run(["nvcc", "-std=c++17", "-O3", "-arch=sm_80", "-cubin", source, "-o", cubin], check=True)
    found = read(cubin, tool)
    (longest,) = [p for p in found if p.kernel == "cached kl, f32, 32 lanes x 32"]
    assert (longest.wide_loads, longest.wide_stores) == (16, 8)
    assert longest.in_flight >= 8
    assert longest.waits <= 6
    assert longest.per_element <= 50
    steps = [p for p in found if p.kernel == "cached kl, f32, block a row"]
    assert steps
    assert all(p.in_flight >= 4 and p.waits <= 4 for p in steps)
    assert "| cached kl, f32, 32 lanes x 32 | 80 | 16 |" in table(found)

"""What the compiler made of the CUDA kernels, for some architectures (make cuda: for all)."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.ptxas import ARCHITECTURES, Kernel, read, table

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "cuda-test"
LENGTHS = {False: [16, 32, 64, 128, 256, 512, 1024, None], True: [32, 256, None]}  # csrc/cuda/tiles.cuh

UPDATES = ("step", "ascent", "accumulation")


@pytest.fixture(scope="module")
def built() -> Path:
    if not shutil.which("nvcc"):
        pytest.skip("no nvcc")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(["make", "test-cuda"], cwd=ROOT, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return BUILD


@pytest.fixture(scope="module")
def kernels(built: Path) -> list[Kernel]:
    return [kernel for log in sorted(built.glob("*.log")) for kernel in read(log.read_text())]


def budget(kernel: Kernel) -> int:
    """Registers.  65536 of them feed a multiprocessor: 64 leave room for 32 warps, 128 for 16, 255 for 8."""
    if kernel.training:
        return 255 if kernel.double else 128  # 256 and 512 threads a block
    if kernel.update:
        return 72  # 256 threads a block: at least three of them, 24 warps
    if kernel.double:
        return 255
    if kernel.classes is None:  # a lower limit made the other two divergences spill, and a mix of types
        return 128 if " kl, f32 rows" in kernel.name or " kl, bf16 rows" in kernel.name else 255
    if " kl" in kernel.name:
        # 512 classes and more: a whole row of loads is in flight, so that 8 warps keep more bytes coming than 12 did
        turing = kernel.arch == "75"  # takes more of them for addresses
        return 128 if kernel.classes <= 256 else 255 if kernel.classes > 512 else 184 if turing else 168
    short = 176 if "reverse_kl" in kernel.name else 128  # the other divergences spilled with fewer
    return short if kernel.classes <= 256 else 168 if kernel.classes <= 512 else 255


def test_every_kernel_for_each_architecture(kernels):
    found = {(k.name, k.arch) for k in kernels}
    assert len(found) == len(kernels)
    (wanted,) = re.findall(r"^TEST_CUDA_ARCHS := (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    compiled = {k.arch for k in kernels}
    assert compiled == set(wanted.split()) <= set(ARCHITECTURES)
    for arch in compiled:
        losses = [k for k in kernels if k.arch == arch and not k.update and not k.training]
        lengths = sorted((k.double, k.classes or 0) for k in losses)
        # cached and raw, kl and the other two divergences; the cross-entropy alone; and the cache.  In float kl has
        # kernels for rows of float32 besides, and for long rows of bfloat16.
        assert lengths == sorted(
            (double, c or 0)
            for double, all_c in LENGTHS.items()
            for c in all_c
            for _ in range(2 * (2 if double else 3 if c else 4) + 2)
        )
        updates = sorted(k.name for k in kernels if k.arch == arch and k.update)
        assert updates == sorted(f"update: {what}, {t}" for what in UPDATES for t in ("f32", "f64"))
        assert sorted(k.name for k in kernels if k.arch == arch and k.training) == [
            "whole client, f32",
            "whole client, f64",
        ]


def test_nothing_leaves_the_registers(kernels):
    assert [k for k in kernels if k.spills or k.stack] == []


def test_registers_are_within_the_budget(kernels):
    assert [k for k in kernels if k.registers > budget(k)] == []


def test_the_library_is_linked(built):
    assert (built / "libfedasd_cuda.so").read_bytes()[:4] == b"\x7fELF"


@pytest.mark.parametrize("source", ["cached", "raw"])
def test_rows_move_in_pieces_of_128_bits(built, source):
    ptx = (built / f"{source}_f32.ptx").read_text()
    entries = re.findall(r"^\.visible \.entry (\w+)\((.*?)^\}", ptx, re.MULTILINE | re.DOTALL)
    assert len(entries) == 3 * len(LENGTHS[False]) + 1
    for name, body in entries:
        assert ".local" not in body, name
        if "RowsE2" in name:
            continue  # bfloat16 moves in pieces of 64 bits
        loads, stores = (len(re.findall(rf"{op}\.global\.\w+\.v4\.u32", body)) for op in ("ld", "st"))
        if tile := re.search(r"WarpTeamIfLi\d+ELi(\d+)E", name):
            # Four floats at a time: of student and teacher (a raw teacher is read in both phases), and the gradient.
            # A raw teacher's last row is in registers when its student comes: that is loaded alone.  Each row is loaded
            # by one of two ways, with and without a look at its ends; the gradient of an ignored row is stored apart.
            pieces = int(tile[1]) // 4
            assert (loads, stores) == (2 * pieces * (2 if source == "cached" else 4), 2 * pieces), name
        else:
            # Four pieces at a time in the online softmax, two of both rows in the last pass, each ahead of the loop and
            # in it; the gradient, and zeros for an ignored row.
            assert loads >= 2 * 4 + 2 * 2 * 2, name
            assert stores >= 2 + 1, name


def test_rows_without_a_teacher_move_in_pieces_of_128_bits(built):
    ptx = (built / "cross_entropy.ptx").read_text()
    entries = re.findall(r"^\.visible \.entry (\w+)\((.*?)^\}", ptx, re.MULTILINE | re.DOTALL)
    assert len(entries) == len(LENGTHS[False]) + len(LENGTHS[True])
    for name, body in entries:
        assert ".local" not in body, name
        loads, stores = (len(re.findall(rf"{op}\.global\.\w+\.v4\.u32", body)) for op in ("ld", "st"))
        if tile := re.search(r"WarpTeamIfLi\d+ELi(\d+)E", name):
            # The student by one of two ways, with and without a look at the row's ends, and the gradient.
            assert (loads, stores) == (2 * int(tile[1]) // 4, int(tile[1]) // 4), name


def test_parameters_move_in_pieces_of_128_bits(built):
    ptx = (built / "update.ptx").read_text()
    entries = re.findall(r"^\.visible \.entry (\w+)\((.*?)^\}", ptx, re.MULTILINE | re.DOTALL)
    assert len(entries) == 2 * len(UPDATES)
    # Reads by the norm's pass and the last one, and writes: g, w and linear, then these and the velocity; w, velocity.
    # A sum of int64 takes two words for the four floats of a piece.
    expected = {
        "StepRow": (3 + 4, 2),
        "AscentRow": (1 + 2, 2),
        "accumulate_kernelIf": (3, 2),
        "accumulate_kernelId": (2, 1),
    }
    for name, body in entries:
        assert ".local" not in body, name
        loads, stores = (len(re.findall(rf"{op}\.global\.\w*\.?v4\.u32", body)) for op in ("ld", "st"))
        kind = next(kind for kind in expected if kind in name)
        assert loads >= expected[kind][0], name  # more where the compiler unrolled a loop
        assert stores >= expected[kind][1], name


def test_weights_and_activations_move_in_pieces_of_128_bits(built):
    ptx = (built / "train_clients.ptx").read_text()
    entries = re.findall(r"^\.visible \.entry (\w+)\((.*?)^\}", ptx, re.MULTILINE | re.DOTALL)
    assert len(entries) == 2
    for name, body in entries:
        assert ".local" not in body, name
        # The compiler sees that all of it is shared memory: four products of a row at once, tiles of four by four.
        word = "v4.f32" if "kernelIf" in name else "v2.f64"
        loads, stores = (len(re.findall(rf"{op}\.shared\.{word}", body)) for op in ("ld", "st"))
        assert loads >= 2 * (1 + 2 + 4), name
        assert stores >= 4, name


def test_table_of_a_log():
    log = """
ptxas info    : Compiling entry function '_ZN6fedasd4cuda16objective_kernelINS0_8WarpTeamIfLi32ELi4EEELb1ELb1ELNS0_4RowsE0EEEvNS0_10ParametersINT_1TEEE' for 'sm_80'
ptxas info    : Function properties for _ZN6fedasd4cuda16objective_kernelINS0_8WarpTeamIfLi32ELi4EEELb1ELb1ELNS0_4RowsE0EEEvNS0_10ParametersINT_1TEEE
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 904 bytes smem, 840 bytes cmem[0]
"""  # noqa: E501
    (kernel,) = read(log)
    assert kernel == Kernel("cached kl, f32, 32 lanes x 4", "80", 128, False, 64, 904, stack=8, spills=16)
    # 64 registers x 128 threads: eight blocks of four warps fill the 65536 registers.
    assert (kernel.warps, kernel.occupancy) == (32, 0.5)
    assert "| cached kl, f32, 32 lanes x 4 | 128 | 904 B | 8, 16 B | 64 / 32 (50%) |" in table([kernel])


def test_unknown_kernels_are_refused():
    log = "Compiling entry function 'mystery' for 'sm_80'\nUsed 10 registers"
    with pytest.raises(ValueError, match="unknown kernel mystery"):
        list(read(log))

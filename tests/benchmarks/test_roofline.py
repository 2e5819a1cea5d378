"""The predictions against values computed by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import roofline
from benchmarks.cases import SHAPES, make_case
from benchmarks.gpu_report import bytes_moved
from benchmarks.roofline import GPUS, Grid, LossCall, Tile, grid, memory_bytes, rounds, tile, waits

A100, H100, L4, RTX = GPUS
SMALL = LossCall(1, 50, 100)
MIDDLE = LossCall(1, 1024, 1000)
LARGE = LossCall(1, 512, 32000)


def raw(work):
    return replace(work, cached=False)


@pytest.mark.parametrize(
    ("classes", "lanes", "slots"),
    [(10, 4, 4), (16, 4, 4), (17, 8, 4), (64, 16, 4), (100, 32, 4), (200, 32, 8), (512, 32, 16), (1000, 32, 32)],
)
def test_tile_holds_the_row(classes, lanes, slots):
    assert (tile(classes).lanes, tile(classes).slots) == (lanes, slots)
    assert lanes * slots >= classes


def test_longer_rows_take_a_block():
    assert tile(1024).lanes == 32
    assert tile(1025) == Tile(0, 8, 512, 512, 1)


def test_grid():
    assert grid(LossCall(1, 50, 10), A100) == Grid(1, 224, 56)  # 50 rows of 4 lanes, rounded up to whole warps
    assert grid(SMALL, A100) == Grid(1, 512, 16)  # 50 / 16: four rounds are still one block
    assert grid(LossCall(1, 65, 100), A100) == Grid(17, 128, 4)  # five are not: blocks of 4 rows
    assert grid(MIDDLE, A100) == Grid(216, 128, 4)  # 256 blocks wanted, 216 resident
    assert grid(MIDDLE, H100) == Grid(256, 128, 4)
    assert grid(LARGE, L4) == Grid(58, 512, 1)
    assert grid(LossCall(1, 8, 1100), A100) == Grid(8, 160, 1)  # 1100 / 8 = 138 threads, in whole warps
    assert grid(LossCall(100, 50, 100), A100) == Grid(1, 512, 16)
    assert grid(LossCall(500, 200, 100), A100) == Grid(1, 512, 16)  # more clients than resident blocks
    assert [rounds(w, A100) for w in (SMALL, MIDDLE, LARGE)] == [4, 2, 5]


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape[-1] <= 1000 and len(shape) == 2], ids=str)
def test_short_rows_move_what_any_implementation_must(shape):
    case, work = make_case(shape), LossCall(1, *shape)
    assert memory_bytes(work, A100) == bytes_moved(case, cached=True)
    workspace = 3 * 4 * shape[0]
    assert memory_bytes(raw(work), A100) == bytes_moved(case, cached=False) + workspace


def test_bytes_by_hand():
    assert memory_bytes(SMALL, A100) == 3 * 50 * 400 + 50 * 40 + 4
    assert memory_bytes(raw(SMALL), A100) == 3 * 50 * 400 + 50 * 24 + 4
    # Long rows: 108 blocks x 3 rows of 128 kB are 41.5 MB, which 40 MiB just hold.
    assert memory_bytes(LARGE, A100) == 3 * 512 * 128000 + 512 * 40 + 4
    # Of the raw teacher's 512 rows 109 are still in L2: 41.9 MB / (3 x 128 kB).
    assert memory_bytes(raw(LARGE), A100) == 3 * 512 * 128000 + (512 - 109) * 128000 + 512 * 24 + 4
    less = replace(A100, l2=40_000_000)
    assert memory_bytes(LARGE, less) == 4 * 512 * 128000 + 512 * 40 + 4


def test_rows_read_again():
    assert roofline.teacher_again(raw(MIDDLE), A100) == (1024 - 864) * 4000
    assert roofline.teacher_again_from_memory(raw(MIDDLE), A100) == 0
    assert roofline.teacher_again(raw(MIDDLE), H100) == 0  # all rows are in registers at once
    assert roofline.teacher_again(MIDDLE, A100) == 0
    assert roofline.student_again(MIDDLE) == 0
    assert roofline.student_again(LARGE) == 512 * 128000


def test_weights_are_read_by_every_block():
    assert roofline.weights_bytes(MIDDLE, A100) == 216 * 1024 * 32
    assert roofline.weights_bytes(raw(MIDDLE), A100) == 216 * 1024 * 12
    assert roofline.weights_bytes(SMALL, A100) == 50 * 32


def test_waits():
    assert waits(SMALL, A100) == 3 + 4
    assert waits(raw(SMALL), A100) == 3 + 4 * 2
    assert waits(LARGE, H100) == 3 + 4 * 2 * 8  # 4 rounds, student then both, 32000 / 4096 chunks
    assert waits(raw(LossCall(1, 8, 151936)), H100) == 3 + 3 * 38


def test_times():
    assert roofline.memory_seconds(LARGE, A100) == pytest.approx(96.44e-6, rel=1e-3)
    # H100, 1024 x 1000: 8 rows of 1000 on a multiprocessor, 7 exponentials each, 16 a clock.
    assert roofline.special_seconds(raw(MIDDLE), H100) == pytest.approx(8000 * 7 / 16 / 1.98e9)
    assert roofline.issue_seconds(raw(MIDDLE), H100) == pytest.approx(8000 * 75 / 128 / 1.98e9)
    # A100: two rounds of 8 rows where 9.5 would do.
    assert roofline.busiest_elements(MIDDLE, A100) == 16_000
    assert roofline.busiest_elements(LossCall(200, 50, 100), A100) == 2 * 5_000
    assert roofline.floor_seconds(MIDDLE, A100) == roofline.floor_seconds(raw(SMALL), A100) == 3e-6
    assert roofline.floor_seconds(raw(MIDDLE), A100) == 4.5e-6


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_what_sets_the_pace(gpu):
    assert roofline.predicted(LARGE, gpu)[2] == "memory"
    assert roofline.predicted(LossCall(1, 50, 10), gpu)[2] == "launch"
    for work in roofline.calls():
        best, worst, _ = roofline.predicted(work, gpu)
        assert roofline.LAUNCH_SECONDS < best <= worst


def test_tables_are_whole(capsys):
    roofline.main()
    tables = roofline.tables()
    assert capsys.readouterr().out == "\n".join(tables)
    for text in tables:
        assert len({line.count("|") for line in text.strip().splitlines()}) == 1
    assert "| 512 x 32000 bf16 |" in tables[2]
    assert roofline.microseconds(9.96e-6) == "10"
    assert roofline.megabytes(8_004) == "0.008"


def test_the_documentation_has_these_tables():
    text = (Path(__file__).parents[2] / "docs/kernels.md").read_text()
    for table in roofline.tables():
        assert table in text

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
    [(10, 4, 4), (16, 4, 4), (17, 8, 4), (64, 16, 4), (100, 16, 8), (200, 32, 8), (512, 32, 16), (1000, 32, 32)],
)
def test_tile_holds_the_row(classes, lanes, slots):
    assert (tile(classes).lanes, tile(classes).slots) == (lanes, slots)
    assert lanes * slots >= classes


def test_longer_rows_take_a_block():
    assert tile(1024).lanes == 32
    assert tile(1025) == Tile(0, 16, 256, 256, 2)


def test_grid():
    assert grid(LossCall(1, 50, 10), A100) == Grid(1, 224, 56)  # 50 rows of 4 lanes, rounded up to whole warps
    assert grid(SMALL, A100) == Grid(7, 128, 8)  # 50 / 16: more than one round of one block
    assert grid(LossCall(1, 16, 100), A100) == Grid(1, 256, 16)
    assert grid(raw(LossCall(1, 32, 100)), A100) == Grid(1, 256, 16)  # two rounds cost no more than a grid barrier
    assert grid(MIDDLE, A100) == Grid(256, 128, 4)  # 324 are resident
    assert grid(MIDDLE, L4) == Grid(174, 128, 4)
    assert grid(LARGE, L4) == Grid(116, 256, 1)
    assert grid(LossCall(1, 8, 1100), A100) == Grid(8, 96, 1)  # 1100 / 16 = 69 threads, in whole warps
    assert grid(LossCall(100, 50, 100), A100) == Grid(6, 128, 8)
    assert grid(LossCall(700, 200, 100), A100) == Grid(1, 256, 16)  # more clients than resident blocks
    # Eight long rows: 216 resident blocks, 27 a row, which leave each more than 4096 of 151936 classes.
    assert grid(LossCall(1, 8, 151936), A100) == Grid(216, 256, 1, 27)
    assert grid(LossCall(1, 8, 9000), A100) == Grid(16, 256, 1, 2)
    assert rounds(LossCall(1, 8, 151936), A100) == 1
    assert [rounds(w, A100) for w in (SMALL, MIDDLE, LARGE)] == [1, 1, 3]


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape[-1] <= 1000 and len(shape) == 2], ids=str)
def test_short_rows_move_what_any_implementation_must(shape):
    case, work = make_case(shape), LossCall(1, *shape)
    assert memory_bytes(work, A100) == bytes_moved(case, cached=True)
    workspace = 3 * 4 * shape[0]
    assert memory_bytes(raw(work), A100) == bytes_moved(case, cached=False) + workspace


def test_bytes_by_hand():
    assert memory_bytes(SMALL, A100) == 3 * 50 * 400 + 50 * 40 + 4
    assert memory_bytes(raw(SMALL), A100) == 3 * 50 * 400 + 50 * 24 + 4
    # Long rows: 216 blocks x 128 kB are 27.6 MB, which 40 MiB hold.
    assert memory_bytes(LARGE, A100) == 3 * 512 * 128000 + 512 * 40 + 4
    # Of the raw teacher's 512 rows 109 are still in L2: 41.9 MB / (3 x 128 kB).
    assert memory_bytes(raw(LARGE), A100) == 3 * 512 * 128000 + (512 - 109) * 128000 + 512 * 24 + 4
    less = replace(A100, l2=27_000_000)
    assert memory_bytes(LARGE, less) == 4 * 512 * 128000 + 512 * 40 + 4


def test_rows_read_again():
    assert roofline.teacher_again(raw(MIDDLE), L4) == (1024 - 696) * 4000
    assert roofline.teacher_again_from_memory(raw(MIDDLE), L4) == 0
    assert roofline.teacher_again(raw(MIDDLE), H100) == 0  # all rows are in registers at once
    assert roofline.teacher_again(MIDDLE, A100) == 0
    assert roofline.student_again(MIDDLE) == 0
    assert roofline.student_again(LARGE) == 512 * 128000


def test_weights_are_read_by_every_block_or_shared_out():
    assert roofline.weights_bytes(MIDDLE, A100) == 256 * 1024 * 24
    assert roofline.weights_bytes(raw(MIDDLE), A100) == 0
    assert roofline.weights_bytes(LossCall(1, 10_000, 10), A100) == 10_000 * 24
    assert roofline.publishes_sums(LossCall(1, 10_000, 10), A100)
    assert not roofline.publishes_sums(MIDDLE, A100)
    assert roofline.publishes_sums(raw(MIDDLE), A100)


def test_waits():
    assert waits(LossCall(1, 50, 10), A100) == 2 + 1  # labels, weights; the row
    assert waits(SMALL, A100) == 2 + 1 + 2  # and the partial losses of several blocks
    assert waits(raw(SMALL), A100) == 1 + 2 + 2
    assert waits(LARGE, H100) == 2 + 2 * 2 + 2  # two rounds, student then both
    assert waits(raw(LossCall(1, 8, 151936)), H100) == 1 + 3 + 2 + 2 * 3  # parts exchange two softmaxes and a sum


def test_times():
    assert roofline.memory_seconds(LARGE, A100) == pytest.approx(96.44e-6, rel=1e-3)
    # H100, 1024 x 1000: 256 blocks of 4 rows on 132 multiprocessors, 7 exponentials each, 16 a clock.
    assert roofline.special_seconds(raw(MIDDLE), H100) == pytest.approx(8000 * 7 / 16 / 1.98e9)
    assert roofline.issue_seconds(raw(MIDDLE), H100) == pytest.approx(8000 * 53.2 / 128 / 1.98e9)
    # A100, 512 x 32000: 216 blocks of 8 warps with 4 loads of 512 bytes each ask for 3.5 MB in half a microsecond.
    assert roofline.in_flight_seconds(LARGE, A100) == pytest.approx(27.8e-6, rel=1e-2)
    assert roofline.busiest_elements(MIDDLE, A100) == 12_000
    assert roofline.floor_seconds(MIDDLE, A100) == 3e-6
    assert roofline.floor_seconds(raw(SMALL), A100) == roofline.floor_seconds(raw(MIDDLE), A100) == 4.5e-6


def test_fraction_of_the_bandwidth():
    # 96.4 microseconds of memory, and five accesses that nothing hides.
    assert roofline.bandwidth_fraction(LARGE, A100) == pytest.approx(96.44 / (96.44 + 2.5), rel=1e-3)
    few = LossCall(1, 8, 151936)  # 7.2 microseconds; nine accesses
    assert roofline.bandwidth_fraction(few, A100) == pytest.approx(7.15 / (7.15 + 4.5), rel=1e-2)
    assert roofline.bandwidth_fraction(replace(LARGE, size=2), A100) >= 0.8


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

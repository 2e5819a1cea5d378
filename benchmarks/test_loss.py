"""Quick runs of a single kernel: pytest benchmarks --benchmark-only -k "loss_and_grad and 50x100".

For figures use python -m benchmarks.loss: pytest-benchmark runs one implementation after the other, so a busy machine
can favour either.
"""

from __future__ import annotations

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from .cases import SHAPES, make_case, shape_name
from .implementations import IMPLEMENTATIONS

# Compiling takes seconds a shape: that comparison is left to the script.
NAMES = [name for name in IMPLEMENTATIONS if name != "compiled"]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", SHAPES, ids=shape_name)
@pytest.mark.parametrize("name", NAMES)
def test_loss(benchmark: BenchmarkFixture, name: str, shape: tuple[int, ...], threads: int) -> None:
    benchmark.group = f"{shape_name(shape)}, {threads} thread(s)"
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        benchmark(IMPLEMENTATIONS[name](make_case(shape)))
    finally:
        torch.set_num_threads(before)

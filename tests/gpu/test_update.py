"""The client update on a GPU: values, determinism, launches, graphs."""

from __future__ import annotations

import math

import pytest
import torch

from benchmarks.cuda import Graph, launches
from fedasd_fast.algorithms import Correction
from fedasd_fast.simulation.aggregation.fixed_point import accumulate
from fedasd_fast.simulation.client import fused_update
from fedasd_fast.simulation.client.fused_update import local_step
from tests.simulation.client.test_fused_update import arguments, compare, copied, normal, run, shape_of

# One block a client, blocks that meet at a grid barrier, more clients than the GPU holds blocks.
SHAPES = [(7,), (16_384,), (1_000_003,), (3, 5001), (3, 200_001), (2000, 1234)]
DTYPES = [torch.float32, torch.float64]


def on(device, made):
    return {name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in made.items()}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_equals_the_reference(shape, dtype, device):
    compare(on(device, arguments(shape, dtype)))
    compare(on(device, arguments(shape, dtype, clip_norm=None, velocity=None, norms=None)))
    compare(on(device, arguments(shape, dtype, linear=normal(shape[-1:], dtype, 5), quadratic=0.0)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("offset", [1, 2, 3])
def test_bits_depend_neither_on_alignment_nor_on_the_other_clients(dtype, offset, device):
    made = on(device, arguments((3, 50_001), dtype))
    stacked = run(made, "fused")
    for k in range(3):
        one = {name: x[k] if isinstance(x, torch.Tensor) else x for name, x in made.items()}
        for name in ("w", "g", "linear", "velocity"):
            one[name] = torch.empty(50_010, dtype=dtype, device=device)[offset : offset + 50_001].copy_(one[name])
        one["norms"] = one["norms"].clone()
        local_step(**one, implementation="fused")
        for name in ("w", "velocity", "norms"):
            assert torch.equal(one[name], stacked[name][k]), name
    for _ in range(20):
        assert torch.equal(run(made, "fused")["w"], stacked["w"])


def test_clients_that_have_finished(device):
    lr = torch.tensor([0.1, 0.0, 0.5], dtype=torch.float64)
    made = on(device, arguments((3, 30_000), torch.float32, lr=lr, decay=lr / 2))
    made["g"][1] = math.nan
    after = run(made, "fused")
    for name in ("w", "velocity"):
        assert torch.equal(after[name][1], made[name][1])
    assert after["norms"][1] == 0
    assert after["w"].isfinite().all()


@pytest.mark.parametrize("shape", [(7,), (1_000_003,), (3, 50_001)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_ascent(shape, dtype, device):
    w, g = normal(shape, dtype, 0).to(device), normal(shape, dtype, 1).to(device)
    actual, expected = w.clone(), w.clone().double()
    saved = fused_update.ascend(actual, g, Correction(rho=0.7), implementation="fused")
    fused_update.ascend(expected, g.double(), Correction(rho=0.7), implementation="reference")
    assert torch.equal(saved, w)
    torch.testing.assert_close(actual, expected.to(dtype))


@pytest.mark.parametrize("clients", [None, 3, 600])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_accumulation_is_the_references(clients, dtype, device):
    values = normal(shape_of(clients, 5003), dtype, 0) * 2.0 ** torch.arange(-30, -30 + 5003).remainder(47)
    weights = [(-1) ** k / (k + 3) for k in range(clients or 1)]
    totals = []
    for context, implementation in ((device, "fused"), (device, "reference"), ("cpu", "fused")):
        total = torch.arange(5003, device=context)
        accumulate(total, values.to(context, dtype), weights, implementation=implementation)
        totals.append(total.cpu())
    assert torch.equal(totals[0], totals[1])
    assert torch.equal(totals[0], totals[2])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_one_launch_and_no_wait(shape, device):
    made = on(device, arguments(shape, torch.float32))
    saved, total = torch.empty_like(made["w"]), torch.zeros(shape[-1], dtype=torch.int64, device=device)
    weights = [0.001] * (shape[0] if len(shape) == 2 else 1)
    for call, kernel, count in (
        (lambda: local_step(**made), "update_kernel", 1),
        (lambda: fused_update.ascend(made["w"], made["g"], Correction(rho=0.1), saved), "update_kernel", 1),
        (lambda: accumulate(total, made["w"], weights), "accumulate_kernel", -(-len(weights) // 256)),
    ):
        work = launches(call)
        assert len(work) == count, work
        assert kernel in work[0][1]
        torch.cuda.set_sync_debug_mode("error")
        try:
            call()
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("shape", [(1_000_003,), (3, 5001)], ids=str)
def test_graph_follows_the_learning_rates_in_memory(shape, device):
    lr = torch.full(shape[:-1], 0.1, dtype=torch.float64, device=device)
    made = on(device, arguments(shape, torch.float32, lr=lr))
    graph = Graph(lambda: local_step(**made))
    for rate in (0.5, 0.0, 0.2):
        lr.fill_(rate)
        expected = copied(made)
        local_step(**expected)
        graph()
        for name in ("w", "velocity", "norms"):
            assert torch.equal(made[name], expected[name])

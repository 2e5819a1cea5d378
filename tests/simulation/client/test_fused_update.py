"""The compiled client update: against its reference, against torch.optim, on any layout, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedasd_fast.algorithms import Correction
from fedasd_fast.kernels import loader
from fedasd_fast.simulation.client import fused_update
from fedasd_fast.simulation.client.fused_update import local_step

pytestmark = pytest.mark.skipif(not loader.available, reason="needs the compiled extension")
SIZES = [1, 7, 16, 33, 1000, 4096, 4097, 20001]
CLIENTS = [None, 1, 3, 17]
DTYPES = [torch.float32, torch.float64]


def close(actual: Tensor, expected: Tensor, dtype: torch.dtype, scale: float = 1.0) -> None:
    unit = torch.finfo(dtype).eps
    torch.testing.assert_close(actual.double(), expected.double(), rtol=8 * unit, atol=8 * unit * scale, equal_nan=True)


def normal(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def shape_of(clients: int | None, size: int) -> tuple[int, ...]:
    return (size,) if clients is None else (clients, size)


def arguments(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0, **options: Any) -> dict[str, Any]:
    """A step with everything in it."""
    made: dict[str, Any] = dict(
        w=normal(shape, dtype, seed), g=normal(shape, dtype, seed + 1), lr=0.3, quadratic=0.25,
        linear=normal(shape, dtype, seed + 2), clip_norm=0.3 * math.sqrt(shape[-1]), decay=0.1,
        velocity=normal(shape, dtype, seed + 3), momentum=0.9, norms=torch.full(shape[:-1], -1.0, dtype=torch.float64),
    )  # fmt: skip
    made.update(options)
    if made["velocity"] is None:
        made["momentum"] = 0.0
    return made


def copied(made: dict[str, Any]) -> dict[str, Any]:
    return {name: x.clone() if isinstance(x, Tensor) else x for name, x in made.items()}


def run(made: dict[str, Any], implementation: str, dtype: torch.dtype | None = None) -> dict[str, Any]:
    """The arguments after the step; `dtype`: in another precision than the norms'."""
    made = copied(made)
    if dtype is not None:
        for name in ("w", "g", "linear", "velocity"):
            made[name] = None if made[name] is None else made[name].to(dtype)
    local_step(**made, implementation=implementation)
    return made


def compare(made: dict[str, Any]) -> dict[str, Any]:
    """Fused against the reference in float64; returns what the fused op made of it."""
    dtype = made["w"].dtype
    actual, expected = run(made, "fused"), run(made, "reference", torch.float64)
    root = math.sqrt(made["w"].shape[-1])
    slack = 4.0 + root / 50  # the reference's own sum of a million squares
    close(actual["w"], expected["w"], dtype, slack)
    if made["velocity"] is not None:
        close(actual["velocity"], expected["velocity"], dtype, slack)
    if made["norms"] is not None:
        close(actual["norms"], expected["norms"], dtype, slack * root)
    for name in ("g", "linear", "lr", "decay"):
        if isinstance(made[name], Tensor):
            assert torch.equal(actual[name], made[name]) or made[name].isnan().any(), f"{name} was changed"
    return actual


@pytest.mark.parametrize("clients", CLIENTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_equals_the_reference(clients: int | None, dtype: torch.dtype, capability: str) -> None:
    for size in SIZES:
        shape = shape_of(clients, size)
        compare(arguments(shape, dtype))
        compare(arguments(shape, dtype, clip_norm=None, velocity=None, norms=None))
        compare(arguments(shape, dtype, clip_norm=1e9, linear=None, velocity=None))
        compare(arguments(shape, dtype, linear=normal((size,), dtype, 5), quadratic=0.0, norms=None))


@pytest.mark.parametrize("clip", [None, 0.5, 1e9])
@pytest.mark.parametrize("momentum", [None, 0.0, 0.9])
@pytest.mark.parametrize("linear", ["none", "each", "shared"])
@pytest.mark.parametrize("quadratic", [0.0, 0.25])
def test_every_combination_of_terms(clip: float | None, momentum: float | None, linear: str, quadratic: float) -> None:
    shape, dtype = (3, 133), torch.float64
    v = {"none": None, "each": normal(shape, dtype, 2), "shared": normal(shape[1:], dtype, 2)}[linear]
    velocity = None if momentum is None else normal(shape, dtype, 3)
    options = dict(clip_norm=clip, velocity=velocity, momentum=momentum or 0.0, linear=v, quadratic=quadratic)
    for norms in (None, torch.zeros(3, dtype=torch.float64)):
        compare(arguments(shape, dtype, norms=norms, **options))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_is_sgd_after_clip_grad_norm(dtype: torch.dtype, capability: str) -> None:
    for clip in (0.5, 1e4):
        start = normal((1234,), dtype, 0)
        theirs = torch.nn.Parameter(start.clone())
        sgd = torch.optim.SGD([theirs], lr=0.1, weight_decay=0.01, momentum=0.9)
        ours, velocity = start.clone(), torch.zeros_like(start)
        for step in range(3):
            g = normal((1234,), dtype, step + 1)
            theirs.grad = g.clone()
            torch.nn.utils.clip_grad_norm_([theirs], clip)
            sgd.step()
            local_step(
                ours, g, 0.1, clip_norm=clip, decay=0.01, velocity=velocity, momentum=0.9, implementation="fused"
            )
        close(ours, theirs.detach(), dtype, 4.0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("implementation", ["fused", "reference"])
def test_a_client_that_has_finished_stays_exactly_as_it_is(dtype: torch.dtype, implementation: str) -> None:
    lr = torch.tensor([0.1, 0.0, 0.5, 0.0], dtype=torch.float64)
    decay = torch.tensor([0.0, 0.1, 0.2, 0.3], dtype=torch.float64)
    made = arguments((4, 77), dtype, lr=lr, decay=decay)
    for value, k in ((math.nan, 1), (math.inf, 3)):
        made["g"][k, 5] = value
    after = run(made, implementation)
    for k in (1, 3):
        assert torch.equal(after["w"][k], made["w"][k])
        assert torch.equal(after["velocity"][k], made["velocity"][k])
        assert after["norms"][k] == 0
    for k in (0, 2):
        one = {name: x[k].clone() if isinstance(x, Tensor) else x for name, x in made.items()}
        assert isinstance(one["lr"], Tensor)
        close(after["w"][k], run(one, implementation)["w"], dtype)
        assert not torch.equal(after["w"][k], made["w"][k])
    still = run(arguments((77,), dtype, lr=0.0), implementation)
    assert torch.equal(still["w"], normal((77,), dtype, 0))
    assert still["norms"] == 0


def test_a_norm_that_is_no_number_spoils_its_own_client_only(capability: str) -> None:
    made = arguments((3, 50), torch.float32)
    made["g"][1, 7] = math.nan
    made["g"][2, 7] = math.inf
    for implementation in ("fused", "reference"):
        w = run(made, implementation)["w"]
        assert w[0].isfinite().all()
        assert w[1].isnan().all()  # as clip_grad_norm_ has it
        assert w[2].isnan().sum() == 1  # the others are clipped to nothing


def test_squares_beyond_float32() -> None:
    made = arguments((40,), torch.float32, linear=None, quadratic=0.0, clip_norm=1.0)
    made["g"][3] = 1e30
    after = run(made, "fused")
    assert after["norms"].item() == pytest.approx(1e30, rel=1e-6)
    assert after["w"].isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("offset", [1, 2, 3])
def test_any_alignment_and_any_stride_between_clients(dtype: torch.dtype, offset: int, capability: str) -> None:
    plain = arguments((3, 131), dtype)
    expected = run(plain, "fused")
    views: dict[str, Any] = dict(plain)
    buffers = {}
    for name in ("w", "g", "linear", "velocity"):
        buffers[name] = torch.full((3, 150), math.nan, dtype=dtype)
        views[name] = buffers[name][:, offset : offset + 131]
        views[name].copy_(plain[name])
    local_step(**views, implementation="fused")
    for name in ("w", "velocity", "norms"):
        assert torch.equal(views[name], expected[name]), name
    for name in ("w", "velocity"):  # and nothing beside them
        assert buffers[name][:, :offset].isnan().all()
        assert buffers[name][:, offset + 131 :].isnan().all()


def test_halves_of_one_buffer_are_no_overlap() -> None:
    plain = arguments((4, 10), torch.float64)
    buffer = torch.empty(4, 20, dtype=torch.float64)
    buffer[:, :10], buffer[:, 10:] = plain["w"], plain["g"]
    local_step(**{**copied(plain), "w": buffer[:, :10], "g": buffer[:, 10:]}, implementation="fused")
    assert torch.equal(buffer[:, :10], run(plain, "fused")["w"])
    assert torch.equal(buffer[:, 10:], plain["g"])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_client_has_the_same_bits_alone_and_in_a_stack(dtype: torch.dtype) -> None:
    made = arguments((5, 9001), dtype)
    stacked = run(made, "fused")
    for k in range(5):
        one = {name: x[k].clone() if isinstance(x, Tensor) else x for name, x in made.items()}
        local_step(**one, implementation="fused")
        for name in ("w", "velocity", "norms"):
            assert torch.equal(one[name], stacked[name][k])


@pytest.mark.parametrize("shape", [(400_001,), (3, 150_001), (40, 5003)], ids=str)
def test_bits_do_not_depend_on_threads(shape: tuple[int, ...]) -> None:
    made = arguments(shape, torch.float32)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            after = run(made, "fused")
            saved = fused_update.ascend(after["w"], made["g"], Correction(rho=0.5), implementation="fused")
            results.append((after["w"], after["velocity"], after["norms"], saved))
    finally:
        torch.set_num_threads(before)
    for result in results[1:]:
        assert all(map(torch.equal, result, results[0]))


@pytest.mark.parametrize("clients", CLIENTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_ascent_and_its_undoing(clients: int | None, dtype: torch.dtype, capability: str) -> None:
    for size in SIZES:
        w, g = normal(shape_of(clients, size), dtype, 0), normal(shape_of(clients, size), dtype, 1)
        correction = Correction(rho=0.7, rho_epsilon=1e-7)
        actual, expected = w.clone(), w.clone().double()
        saved = fused_update.ascend(actual, g, correction, implementation="fused")
        fused_update.ascend(expected, g.double(), correction, implementation="reference")
        close(actual, expected, dtype)
        assert torch.equal(saved, w)
        assert torch.equal(g, normal(shape_of(clients, size), dtype, 1))
        lengths = torch.linalg.vector_norm((actual - w).double(), dim=-1)
        torch.testing.assert_close(lengths, torch.full_like(lengths, 0.7), rtol=1e-4, atol=0)
        given = torch.empty_like(w)
        assert fused_update.ascend(actual, g, correction, given) is given


def test_no_gradient_no_ascent() -> None:
    w = normal((9,), torch.float32, 0)
    fused_update.ascend(w, torch.zeros(9), Correction(rho=0.1), implementation="fused")
    assert torch.equal(w, normal((9,), torch.float32, 0))


@settings(max_examples=150, deadline=None)
@given(
    clients=st.none() | st.integers(0, 5), size=st.integers(0, 70), seed=st.integers(0, 2**31),
    lr=st.sampled_from([0.0, 1e-3, 1.0, "each"]), decay=st.sampled_from([0.0, 0.1, "each"]),
    clip=st.none() | st.floats(1e-3, 100), quadratic=st.sampled_from([0.0, -0.5, 2.0]),
    momentum=st.none() | st.floats(0, 1), linear=st.sampled_from(["none", "each", "shared"]), norms=st.booleans(),
)  # fmt: skip
def test_any_setting_equals_the_reference(
    clients, size, seed, lr, decay, clip, quadratic, momentum, linear, norms
) -> None:
    shape, dtype = shape_of(clients, size), torch.float64
    random = torch.Generator().manual_seed(seed)
    numbers = torch.rand(shape[:-1], generator=random, dtype=dtype) * (torch.rand(shape[:-1], generator=random) < 0.8)
    made = dict(
        w=normal(shape, dtype, seed), g=normal(shape, dtype, seed + 1), lr=numbers if lr == "each" else lr,
        quadratic=quadratic, clip_norm=clip, decay=numbers / 2 if decay == "each" else decay,
        linear={"none": None, "each": normal(shape, dtype, seed + 2), "shared": normal(shape[-1:], dtype, 0)}[linear],
        velocity=None if momentum is None else normal(shape, dtype, seed + 3), momentum=momentum or 0.0,
        norms=torch.empty(shape[:-1], dtype=dtype) if norms else None,
    )  # fmt: skip
    compare(made)


GOOD = arguments((3, 8), torch.float32)
BUFFER = torch.zeros(6, 8)
REFUSED = {
    "w 3-D": (dict(w=torch.zeros(2, 3, 8)), "w has shape"),
    "w scalar": (dict(w=torch.tensor(1.0)), "w has shape"),
    "w half": (dict(w=torch.zeros(3, 8, dtype=torch.float16)), "w has dtype"),
    "g shape": (dict(g=torch.zeros(8)), "g has shape"),
    "g dtype": (dict(g=torch.zeros(3, 8, dtype=torch.float64)), "g has dtype"),
    "linear shape": (dict(linear=torch.zeros(3)), "linear has shape"),
    "linear one row": (dict(linear=torch.zeros(1, 8)), "linear has shape"),
    "linear dtype": (dict(linear=torch.zeros(8, dtype=torch.float64)), "linear has dtype"),
    "velocity shape": (dict(velocity=torch.zeros(3, 9)), "velocity has shape"),
    "no velocity": (dict(velocity=None), "momentum = 0.9 without a velocity"),
    "lr negative": (dict(lr=-0.5), "lr = -0.5"),
    "lr nan": (dict(lr=math.nan), "lr = nan"),
    "lr shape": (dict(lr=torch.zeros(4, dtype=torch.float64)), "lr has shape"),
    "lr dtype": (dict(lr=torch.zeros(3)), "lr has dtype"),
    "one lr": (dict(lr=torch.tensor([0.1, -0.5, 0.1], dtype=torch.float64)), r"lr\[1\] = -0.5"),
    "one lr nan": (dict(lr=torch.tensor([0.1, 0.1, math.nan], dtype=torch.float64)), r"lr\[2\] = nan"),
    "decay nan": (dict(decay=math.nan), "decay = nan"),
    "decay shape": (dict(decay=torch.zeros((), dtype=torch.float64)), "decay has shape"),
    "one decay": (dict(decay=torch.tensor([0.1, math.inf, 0.1], dtype=torch.float64)), r"decay\[1\] = inf"),
    "quadratic inf": (dict(quadratic=math.inf), "quadratic = inf"),
    "clip 0": (dict(clip_norm=0.0), "clip_norm = 0"),
    "clip negative": (dict(clip_norm=-1.0), "clip_norm = -1"),
    "clip nan": (dict(clip_norm=math.nan), "clip_norm = nan"),
    "momentum nan": (dict(momentum=math.nan), "momentum = nan"),
    "norms dtype": (dict(norms=torch.zeros(3)), "norms has dtype"),
    "norms shape": (dict(norms=torch.zeros(2, dtype=torch.float64)), "norms has shape"),
}
# What only matters where memory is written directly.
REFUSED_LAYOUTS = {
    "w transposed": (dict(w=torch.zeros(8, 3).T), r"w has strides .*contiguous"),
    "g spread": (dict(g=torch.zeros(3, 16)[:, ::2]), "g has strides"),
    "w expanded": (dict(w=torch.zeros(8).expand(3, 8)), "w has strides .*rows overlap"),
    "g is w": (dict(w=BUFFER[:3], g=BUFFER[:3]), "w shares memory with g"),
    "g overlaps w": (dict(w=BUFFER[:3], g=BUFFER[2:5]), "w shares memory with g"),
    "velocity is g": (dict(velocity=BUFFER[:3], g=BUFFER[:3]), "velocity shares memory with g"),
    "linear in w": (dict(w=BUFFER[:3], linear=BUFFER[1]), "w shares memory with linear"),
}


@pytest.mark.parametrize("implementation", ["fused", "reference"])
@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, implementation: str) -> None:
    change, message = REFUSED[case]
    made = copied({**GOOD, **change})
    before = copied(made)
    with pytest.raises(ValueError, match=message):
        local_step(**made, implementation=implementation)
    assert torch.equal(made["w"], before["w"])


@pytest.mark.parametrize("case", REFUSED_LAYOUTS)
def test_refused_layouts(case: str) -> None:
    change, message = REFUSED_LAYOUTS[case]
    with pytest.raises(ValueError, match=message):
        local_step(**{**copied(GOOD), **change}, implementation="fused")


@pytest.mark.parametrize("implementation", ["fused", "reference"])
def test_refused_ascents(implementation: str) -> None:
    w, g = torch.zeros(8), torch.ones(8)
    for correction, message in (
        (Correction(rho=math.nan), "rho = nan"),
        (Correction(rho=1, rho_epsilon=-1), "epsilon = -1"),
    ):
        with pytest.raises(ValueError, match=message):
            fused_update.ascend(w, g, correction, implementation=implementation)
    with pytest.raises(ValueError, match="saved has shape"):
        fused_update.ascend(w, g, Correction(rho=0.1), torch.zeros(7), implementation=implementation)
    with pytest.raises(ValueError, match="implementation = 'cuda'"):
        fused_update.ascend(w, g, Correction(), implementation="cuda")
    if implementation == "fused":
        with pytest.raises(ValueError, match="saved shares memory with w"):
            fused_update.ascend(w, g, Correction(rho=0.1), w, implementation=implementation)


def op_arguments(shape: tuple[int, ...]) -> tuple[Any, ...]:
    a = arguments(shape, torch.float32)
    numbers = torch.rand(shape[:-1], dtype=torch.float64)
    return a["w"], a["g"], a["velocity"], a["linear"], numbers / 2, numbers, a["norms"], 0.25, 0.3, 0.0, 0.0, 0.9


def test_opcheck() -> None:
    ops = torch.ops.fedasd
    torch.library.opcheck(ops.local_step_.default, op_arguments((3, 20)))
    torch.library.opcheck(
        ops.local_step_.default,
        (torch.randn(20), torch.randn(20), None, None, None, None, None, 0.0, None, 0.1, 0.1, 0.0),
    )
    torch.library.opcheck(ops.ascend_.default, (torch.randn(3, 9), torch.randn(3, 9), torch.zeros(3, 9), 0.1, 1e-7))
    total = torch.zeros(9, dtype=torch.int64)
    torch.library.opcheck(ops.accumulate_.default, (total, torch.randn(3, 9), [0.2, 0.3, 0.5]))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_without_graph_break(dynamic: bool) -> None:
    @torch.compile(fullgraph=True, backend="aot_eager", dynamic=dynamic)
    def compiled(w: Tensor, g: Tensor, total: Tensor) -> Tensor:
        local_step(w, g * 2, 0.1, clip_norm=0.5)
        saved = fused_update.ascend(w, g, Correction(rho=0.5))
        torch.ops.fedasd.accumulate_(total, saved, [1.0])
        return w + 1

    for size in (20, 31):
        w, g = normal((size,), torch.float32, 0), normal((size,), torch.float32, 1)
        expected = w.clone()
        local_step(expected, g * 2, 0.1, clip_norm=0.5)
        before = expected.clone()
        fused_update.ascend(expected, g, Correction(rho=0.5))
        total = torch.zeros(size, dtype=torch.int64)
        result = compiled(w, g, total)
        assert torch.equal(w, expected)
        assert torch.equal(result, expected + 1)
        torch.testing.assert_close(total.double() / 2**44, before.double())


def test_gradients_are_refused_and_writes_are_seen_by_autograd() -> None:
    w, g = torch.randn(5), torch.randn(5, requires_grad=True)
    with pytest.raises(ValueError, match=r"g requires grad.*detach"):
        local_step(w, g, 0.1, implementation="fused")
    with pytest.raises(ValueError, match="w requires grad"):
        fused_update.ascend(torch.randn(5, requires_grad=True), w, Correction(rho=0.1), implementation="fused")
    parameter = torch.randn(5, requires_grad=True)
    loss = parameter.square().sum()  # keeps the parameter for its backward pass
    with torch.no_grad():
        local_step(parameter, w, 0.1, implementation="fused")
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with torch.inference_mode():
        local_step(torch.randn(5), torch.randn(5), 0.1, implementation="fused")

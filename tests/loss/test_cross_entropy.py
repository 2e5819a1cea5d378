"""The objective without a teacher: the cross-entropy alone, of one client or of several."""

import math

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn.functional import cross_entropy

import fedasd_fast as fa
from tests.conftest import Batch, client_dim, make_batch
from tests.inputs import OP_ARGUMENTS, distance, leaf, odd_layouts

SHAPES = [(7, 10), (40, 33), (5, 100), (3, 1), (1, 2), (0, 5), (9, 1024), (2, 2500), (4, 6, 10), (3, 9, 50), (0, 4, 5)]
OPTIONS = [
    {},
    dict(temperature=3.0, not_true=True),
    dict(weighting="uniform", divergence="js", entropy_temperature=0.5, entropy_power=2.0, prior_power=0.0),
]
OP_OPTIONS = (*OP_ARGUMENTS[:6], 0.0, *OP_ARGUMENTS[7:])  # asd_weight = 0


def fused(batch, **keywords):
    keywords = dict(implementation="fused", client_dim=batch.client_dim, **keywords)
    return fa.asd_loss_and_grad(batch.student, None, batch.targets, None, 0.0, **keywords)


def eager(batch, dtype=None):
    """Losses and gradients by torch, client by client; a client without a valid row has 0."""
    student = batch.student.detach().to(dtype or batch.student.dtype).requires_grad_()
    valid = (batch.targets != -100).sum(-1).clamp_min(1)
    sums = cross_entropy(student.flatten(0, -2), batch.targets.flatten(), reduction="none", ignore_index=-100)
    loss = sums.view(batch.targets.shape).sum(-1) / valid
    (gradient,) = torch.autograd.grad(loss.sum(), student)
    return loss.detach(), gradient


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("implementation", ["fused", "reference"])
def test_equals_torch(shape, dtype, implementation, capability):
    batch = make_batch(shape, dtype, ignored=0.2)
    tolerance = dict(rtol=1e-12, atol=1e-13) if dtype == torch.float64 else dict(rtol=1e-5, atol=1e-6)
    truth = eager(batch, torch.float64)
    for options in OPTIONS:  # they are of the distillation, and change nothing
        keywords = dict(implementation=implementation, client_dim=batch.client_dim, **options)
        results = fa.asd_loss_and_grad(batch.student, None, batch.targets, None, 0.0, **keywords)
        for actual, expected in zip(results, truth, strict=True):
            assert actual.dtype == dtype
            torch.testing.assert_close(actual.double(), expected, **tolerance)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(32, 10), (3, 8, 100), (3, 2500)], ids=str)
def test_half_precision_is_as_accurate_as_eager(dtype, shape, capability):
    """No further from the float64 truth of the same half inputs than torch, which computes in float32."""
    batch = make_batch(shape, dtype, ignored=0.1)
    truth, single = eager(batch, torch.float64), eager(batch, torch.float32)
    loss, gradient = fused(batch)
    assert (loss.dtype, gradient.dtype) == (torch.float32, dtype)
    assert distance(loss, truth[0]) <= 1.5 * distance(single[0], truth[0]) + 1e-6
    assert distance(gradient, truth[1]) <= 1.01 * distance(single[1].to(dtype), truth[1]) + 1e-7


@pytest.mark.parametrize("shape", [(50, 10, 10), (6, 50, 100), (3, 40, 17), (2, 3, 2500), (64, 32)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_same_bits_as_beside_a_distillation_of_weight_zero(shape, dtype, capability):
    """So a run with asd.weight = 0 is the run without ASD, and stacked FedAvg repeats what it gave before."""
    batch = make_batch(shape, dtype, ignored=0.2)
    clients = dict(client_dim=batch.client_dim)
    beside = fa.asd_loss_and_grad(*batch, 0.0, implementation="fused", **clients)
    itself = fa.asd_loss_and_grad(
        batch.student, batch.student, batch.targets, None, 0.0, weighting="uniform", **clients
    )
    for alone, first, second in zip(fused(batch), beside, itself, strict=True):
        assert torch.equal(alone, first)
        assert torch.equal(alone, second)


def test_ce_weight_scales_value_and_gradient():
    batch = make_batch((6, 20), torch.float64)
    whole, quarter, nothing = (fused(batch, ce_weight=w) for w in (1.0, 0.25, 0.0))
    for one, part, zero in zip(whole, quarter, nothing, strict=True):
        torch.testing.assert_close(part, 0.25 * one)
        assert not zero.any()
    assert not fa.asd_objective(
        batch.student, None, batch.targets, None, 0.0, ce_weight=0.0, implementation="reference"
    ).any()


@pytest.mark.parametrize("implementation", ["fused", "reference"])
@pytest.mark.parametrize("shape", [(4, 10), (4, 100), (2, 4, 10)], ids=str)
def test_ignored_rows_take_part_in_nothing(shape, implementation, capability):
    batch = make_batch(shape)
    batch.targets.clamp_(max=6)  # 7 is the label to ignore

    def loss_and_grad(student, targets):
        keywords = dict(ignore_index=7, implementation=implementation, client_dim=client_dim(student))
        return fa.asd_loss_and_grad(student, None, targets, None, 0.0, **keywords)

    clean = loss_and_grad(batch.student, batch.targets)
    loss, gradient = loss_and_grad(
        torch.cat([batch.student, torch.full_like(batch.student, math.nan)], -2),
        torch.cat([batch.targets, torch.full_like(batch.targets, 7)], -1),
    )
    valid, ignored = gradient.chunk(2, -2)
    assert torch.equal(loss, clean[0])
    assert torch.equal(valid, clean[1])
    assert not ignored.any()


@pytest.mark.parametrize("implementation", ["fused", "reference"])
def test_client_without_valid_row_gives_zero(implementation):
    batch = make_batch((3, 4, 10))
    batch.targets[1].fill_(-100)
    loss, gradient = fa.asd_loss_and_grad(
        batch.student, None, batch.targets, None, 0.0, implementation=implementation, client_dim=0
    )
    assert loss[1].item() == 0
    assert not gradient[1].any()
    assert (loss[[0, 2]] > 0).all()


def test_any_memory_layout_and_label_type(capability):
    for shape in ((6, 10), (3, 4, 40), (2, 1500)):
        batch = make_batch(shape, ignored=0.1)
        plain = fused(batch)
        for student in odd_layouts(batch.student):
            for actual, expected in zip(fused(Batch(student, None, batch.targets.int(), None)), plain, strict=True):
                assert torch.equal(actual, expected)


def test_result_does_not_depend_on_threads():
    batch = make_batch((40, 20, 100), ignored=0.1)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            results.append(fused(batch))
    finally:
        torch.set_num_threads(before)
    for loss, gradient in results[1:]:
        assert torch.equal(loss, results[0][0])
        assert torch.equal(gradient, results[0][1])


@pytest.mark.parametrize("shape", [(4, 5), (3, 40), (2, 3, 4)], ids=str)
def test_gradcheck(shape):
    batch = make_batch(shape, torch.float64, ignored=0.2, scale=1.0)

    def objective(z, implementation):
        keywords = dict(implementation=implementation, client_dim=batch.client_dim)
        return fa.asd_objective(z, None, batch.targets, None, 0.0, **keywords)

    student = batch.student.requires_grad_()
    assert gradcheck(objective, (student, "fused"))
    assert gradcheck(objective, (student, "reference"))
    ours, theirs = (torch.autograd.grad(objective(student, i).sum(), student)[0] for i in ("fused", "reference"))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", ["asd_objective", "asd_loss_and_grad"])
@pytest.mark.parametrize("shape", [(4, 7), (2, 4, 7)], ids=str)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_opcheck(name, shape, requires_grad):
    batch = make_batch(shape, ignored=0.1)
    arguments = (batch.student.requires_grad_(requires_grad), None, batch.targets, None, *OP_OPTIONS)
    torch.library.opcheck(getattr(torch.ops.fedasd, name).default, arguments)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_without_graph_break(dynamic):
    @torch.compile(fullgraph=True, backend="aot_eager", dynamic=dynamic)
    def step(student, targets):
        return 2 * fa.asd_objective(student * 1.5, None, targets, None, 0.0)

    for rows in (6, 9):
        student, batch = leaf(make_batch((rows, 20)))
        step(student, batch.targets).backward()
        expected = eager(Batch(batch.student * 1.5, None, batch.targets, None))[1] * 3.0
        torch.testing.assert_close(student.grad, expected, rtol=1e-4, atol=1e-5)


def test_vmap_maps_clients_onto_the_client_dimension():
    batch = make_batch((3, 4, 20), ignored=0.2)
    loss, gradient = fused(batch)
    losses, gradients = torch.func.vmap(lambda z, y: fa.asd_loss_and_grad(z, None, y, None, 0.0))(
        batch.student, batch.targets
    )
    assert torch.equal(losses, loss)
    assert torch.equal(gradients, gradient)
    slopes = torch.func.vmap(torch.func.grad(lambda z, y: fa.asd_objective(z, None, y, None, 0.0)))
    torch.testing.assert_close(slopes(batch.student, batch.targets), gradient)


def test_module_takes_no_teacher():
    batch = make_batch((6, 20))
    loss = fa.ASDLoss(asd_weight=0.0)(batch.student, None, batch.targets)
    torch.testing.assert_close(loss, cross_entropy(batch.student, batch.targets))


@pytest.mark.parametrize("implementation", ["fused", "reference"])
def test_a_distillation_needs_a_teacher(implementation):
    batch = make_batch((4, 6))
    message = r"teacher_logits = None, but asd_weight = {}.*asd_weight=0"
    with pytest.raises(ValueError, match=message.format("3")):
        fa.asd_objective(batch.student, None, batch.targets, batch.prior, 3.0, implementation=implementation)
    with pytest.raises(ValueError, match=message.format("-0.5")):
        fa.asd_loss_and_grad(batch.student, None, batch.targets, None, -0.5, implementation=implementation)
    with pytest.raises(ValueError, match=message.format("1")):
        fa.asd_loss(batch.student, None, batch.targets, batch.prior, implementation=implementation)


def test_a_traced_distillation_needs_a_teacher():
    batch = make_batch((4, 6))
    with torch._subclasses.FakeTensorMode() as mode:
        student, targets = mode.from_tensor(batch.student), mode.from_tensor(batch.targets)
        loss, gradient = fa.asd_loss_and_grad(student, None, targets, None, 0.0)
        assert (loss.shape, gradient.shape) == ((), (4, 6))
        with pytest.raises(ValueError, match="teacher_logits = None, but asd_weight = 2"):
            fa.asd_objective(student, None, targets, None, 2.0)


@pytest.mark.parametrize("implementation", ["fused", "reference"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(targets=torch.zeros(5, dtype=torch.long)), "targets has shape"),
        (dict(targets=torch.zeros(4)), "targets has dtype"),
        (dict(targets=torch.full((4,), 6)), "= 6 is neither a class"),
        (dict(prior=torch.ones(5)), "label_prior has shape"),
        (dict(student=torch.ones(4, 6, dtype=torch.long)), "student_logits has dtype"),
    ],
)
def test_bad_input(change, message, implementation):
    batch = make_batch((4, 6))
    arguments = {"student": batch.student, "teacher": None, "targets": batch.targets, "prior": None, **change}
    with pytest.raises(ValueError, match=message):
        fa.asd_objective(*arguments.values(), 0.0, implementation=implementation)


def test_rows_of_a_cache_need_the_cache():
    batch = make_batch((4, 6))
    arguments = (batch.student, None, batch.targets, None, torch.arange(4), *OP_OPTIONS[1:])
    with pytest.raises(ValueError, match="rows is given without a teacher cache"):
        torch.ops.fedasd.asd_objective(*arguments)

"""The CUDA kernels against the reference in float64, and against the CPU kernels."""

import itertools
import math

import pytest
import torch

import fedasd_fast as fa
from tests.conftest import Batch, make_batch, reference_loss_and_grad
from tests.gpu.inputs import SHAPES, TEACHERS, fused, teacher_of
from tests.inputs import HARD, OPTIONS, distance, odd_layouts

CLASSES = [1, 2, 10, 16, 17, 33, 100, 128, 200, 257, 1000, 1024, 1025, 4099, 32000]
BATCHES = [0, 1, 10, 50, 64, 300]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
WEIGHTS = [(3.0, 0.7), (1.0, 0.0), (0.5, 1.0), (0.0, 1.0)]
# More than 2**31 elements in a batch; in half precision, with the gradient, 13 GB.
HUGE = (70_000, 32_000)
HUGE_NEEDS = 20 * 2**30


def assert_near(actual, truth, about=""):
    """Within the rounding of the arithmetic, then of the gradient's own type, of the largest true value."""
    loss, gradient = actual
    tolerance = 1e-12 if loss.dtype == torch.float64 else 1e-5
    assert distance(loss, truth[0]) <= tolerance * (1 + largest(truth[0])), about
    stored = torch.finfo(gradient.dtype)
    if stored.eps > 1e-4:
        tolerance += stored.eps
    assert distance(gradient, truth[1]) <= tolerance * largest(truth[1]) + stored.tiny * stored.eps, about


def largest(tensor):
    return tensor.abs().max().item() if tensor.numel() else 0.0


@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("kind", TEACHERS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_value_and_gradient(classes, kind, dtype, device):
    """Every divergence and not_true for each shape; weightings and temperatures go round from shape to shape."""
    for place, rows in enumerate(BATCHES):
        batch = make_batch((rows, classes), dtype, ignored=0.2).on(device)
        some = OPTIONS[(CLASSES.index(classes) + place) % 6 :: 6]
        for turn, options in enumerate(some):
            check(batch, kind, options, WEIGHTS[(place + turn) % len(WEIGHTS)])


def check(batch, kind, options, weights):
    key = {name: options[name] for name in ("temperature", "entropy_temperature", "not_true")}
    teacher, prior = teacher_of(batch, kind, **key)
    actual = fused((batch.student, teacher, batch.targets, prior), *weights, **options)
    assert actual[1].dtype == batch.student.dtype
    truth = reference_loss_and_grad(batch, weights[0], torch.float64, ce_weight=weights[1], **options)
    assert_near(actual, truth, (tuple(batch.student.shape), options, weights))


@pytest.mark.parametrize("shape", [*SHAPES, (4, 6, 10), (50, 3, 17), (0, 4, 5), (2, 0, 5), (3, 9, 1025)], ids=str)
@pytest.mark.parametrize("kind", TEACHERS)
@pytest.mark.parametrize("divergence", ["kl", "reverse_kl", "js"])
def test_many_rows_and_clients(shape, kind, divergence, device):
    batch = make_batch(shape, ignored=0.2).on(device)
    check(batch, kind, {**OPTIONS[0], "divergence": divergence}, (3.0, 0.7))


@pytest.mark.parametrize("shape", [*SHAPES, (0, 5), (2, 0, 5), (7, 1500)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_cross_entropy_without_a_teacher(shape, dtype, device):
    batch = make_batch(shape, dtype, ignored=0.2).on(device)
    alone = (batch.student, None, batch.targets, None)
    first = fused(alone, 0.0)
    assert_near(first, reference_loss_and_grad(batch, 0.0, torch.float64), shape)
    assert all(map(torch.equal, fused(alone, 0.0), first))


def test_powers_enter_the_weights(device):
    batch = make_batch((300, 12), torch.float64).on(device)
    for kind, powers in itertools.product(TEACHERS, ((0.0, 1.0), (1.0, 0.0), (2.5, 0.3), (-1.0, 1.0))):
        options = dict(entropy_power=powers[0], prior_power=powers[1])
        teacher, prior = teacher_of(batch, kind, **options)
        actual = fused((batch.student, teacher, batch.targets, prior), 2.0, **options)
        assert_near(actual, reference_loss_and_grad(batch, 2.0, **options), (kind, powers))


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("divergence", ["kl", "reverse_kl", "js"])
@pytest.mark.parametrize("not_true", [False, True])
def test_float32_is_as_accurate_as_eager(name, divergence, not_true, device):
    """Of the worst of several batches, at most twice the eager reference's distance to the float64 truth."""
    options = dict(divergence=divergence, not_true=not_true)
    for weights in ((1.0, 0.0), (0.0, 1.0), (30.0, 1.0)):
        ours, theirs = [], []
        for seed in range(8):
            batch = HARD[name](seed).on(device)
            truth = reference_loss_and_grad(batch, weights[0], torch.float64, ce_weight=weights[1], **options)
            eager = reference_loss_and_grad(batch, weights[0], ce_weight=weights[1], **options)
            result = fused(batch, *weights, **options)
            for errors, pair in ((ours, result), (theirs, eager)):
                errors.append([distance(x, y) / max(1, largest(y)) for x, y in zip(pair, truth, strict=True)])
        for worst, eager_worst in zip(map(max, *ours), map(max, *theirs), strict=True):
            assert worst <= 2 * eager_worst + 2e-7 * max(weights), weights


@pytest.mark.parametrize("kind", TEACHERS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(10, 10), (300, 100), (3, 20, 1500)], ids=str)
def test_agrees_with_the_cpu_kernels(kind, dtype, shape, device):
    batch = make_batch(shape, dtype, ignored=0.1)
    results = []
    for where in (device, "cpu"):
        here = batch.on(where)
        teacher, prior = teacher_of(here, kind)
        results.append(fused((here.student, teacher, here.targets, prior), 3.0))
    assert_near(results[0], [x.double().to(device) for x in results[1]])


@pytest.mark.parametrize("kind", TEACHERS)
@pytest.mark.parametrize("shape", [(50, 10), (5000, 10), (64, 4099), (3, 200, 100)], ids=str)
def test_a_given_normalizer(kind, shape, device):
    """In place of the batch's own, one for each client."""
    batch = make_batch(shape, ignored=0.2).on(device)
    teacher, prior = teacher_of(batch, kind)
    normalizer = torch.rand(shape[:-2], dtype=torch.float64, device=device) + 0.5
    actual = fused((batch.student, teacher, batch.targets, prior), 3.0, alpha_normalizer=normalizer)
    truth = reference_loss_and_grad(batch, 3.0, torch.float64, alpha_normalizer=normalizer)
    assert_near(actual, truth, (shape, kind))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", TEACHERS)
def test_every_run_gives_the_same_bits(shape, kind, device):
    batch = make_batch(shape, ignored=0.1).on(device)
    teacher, prior = teacher_of(batch, kind)
    first = fused((batch.student, teacher, batch.targets, prior), 3.0)
    for _ in range(20):
        again = fused((batch.student, teacher, batch.targets, prior), 3.0)
        assert all(map(torch.equal, again, first))


@pytest.mark.parametrize("divergence", ["kl", "reverse_kl", "js"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(16, 10), (300, 100), (16, 1000), (20, 3001)], ids=str)
def test_student_equal_to_teacher_is_exactly_zero(divergence, dtype, shape, device):
    batch = make_batch(shape, dtype).on(device)
    equal = Batch(batch.teacher, batch.teacher.clone(), batch.targets, batch.prior)
    loss, gradient = fused(equal, 30.0, 0.0, divergence=divergence)
    assert loss.item() == 0 if divergence == "kl" else abs(loss.item()) < 1e-6
    assert not gradient.any()


@pytest.mark.parametrize("shape", [(6, 10), (6, 100), (3, 4, 40), (300, 1000), (2, 1501)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_memory_layout(shape, dtype, device):
    """Misaligned rows are summed in another order, so results may differ by rounding."""
    batch = make_batch(shape, dtype, ignored=0.1).on(device)
    truth = reference_loss_and_grad(batch, 3.0, torch.float64)
    layouts = [[plain, *odd_layouts(plain)] for plain in (batch.student, batch.teacher)]
    for student, teacher in itertools.product(*layouts):
        result = fused(Batch(student, teacher, batch.targets, batch.prior), 3.0)
        assert_near(result, truth, (student.stride(), teacher.stride()))
        assert result[1].is_contiguous()


def test_expanded_inputs_and_int32_labels(device):
    batch = make_batch((5, 12)).on(device)
    rows = Batch(
        batch.student, batch.teacher[:1].expand(5, 12), batch.targets[:1].expand(5), batch.prior[:1].expand(12)
    )
    solid = Batch(*(x.contiguous() for x in rows))
    assert_near(fused(rows, 3.0), [x.double() for x in fused(solid, 3.0)])
    narrow = Batch(batch.student, batch.teacher, batch.targets.int(), batch.prior)
    assert torch.equal(fused(narrow, 3.0)[1], fused(batch, 3.0)[1])


@pytest.mark.parametrize("classes", [20, 1500])
def test_teacher_and_student_may_differ_in_dtype(classes, device):
    batch = make_batch((6, classes), torch.float64).on(device)
    for student, teacher in itertools.permutations(DTYPES, 2):
        mixed = Batch(batch.student.to(student), batch.teacher.to(teacher), batch.targets, batch.prior)
        assert_near(fused(mixed, 3.0), reference_loss_and_grad(mixed, 3.0, torch.float64), (student, teacher))


@pytest.mark.parametrize("classes", [10, 100, 1500])
@pytest.mark.parametrize("kind", TEACHERS)
def test_ignored_rows_may_hold_anything(classes, kind, device):
    batch = make_batch((8, classes)).on(device)
    batch.targets[4:] = -100
    batch.student[4:] = batch.teacher[4:] = math.nan
    teacher, prior = teacher_of(batch, kind)
    loss, gradient = fused((batch.student, teacher, batch.targets, prior), 3.0)
    clean = Batch(*(x[:4] for x in (batch.student, batch.teacher, batch.targets)), batch.prior)
    assert_near((loss, gradient[:4]), reference_loss_and_grad(clean, 3.0, torch.float64))
    assert not gradient[4:].any()
    batch.targets.fill_(-100)
    loss, gradient = fused(batch, 3.0)
    assert loss.item() == 0
    assert not gradient.any()


@pytest.mark.parametrize("where", ["student", "teacher"])
@pytest.mark.parametrize("classes", [10, 100, 1500])
def test_nan_logits_are_not_hidden(where, classes, device):
    batch = make_batch((3, classes)).on(device)
    getattr(batch, where)[1, 4] = math.nan
    loss, gradient = fused(batch, 3.0)
    assert loss.isnan()
    assert gradient[1].isnan().any()


@pytest.mark.parametrize(("where", "divergence"), [("student", "kl"), ("teacher", "reverse_kl")])
@pytest.mark.parametrize("classes", [10, 100, 1500])
def test_excluded_classes_are_infinitely_far(where, divergence, classes, device):
    batch = make_batch((3, classes)).on(device)
    getattr(batch, where)[1, 4] = -math.inf
    batch.targets.fill_(0)
    assert fused(batch, 1.0, 0.0, divergence=divergence)[0].item() == math.inf


def test_inputs_are_not_written(device):
    batch = make_batch((300, 40)).on(device)
    copies = [x.clone() for x in batch]
    batch.student.requires_grad_()
    fa.asd_objective(*batch, 3.0, implementation="fused").backward()
    assert all(map(torch.equal, batch, copies))


@pytest.fixture
def huge(device):
    """A batch of which only the first and the last rows count, and these rows alone."""
    free, _ = torch.cuda.mem_get_info(device)
    if free < HUGE_NEEDS:
        pytest.skip(f"needs {HUGE_NEEDS / 2**30:.0f} GiB of free GPU memory, there are {free / 2**30:.1f}")
    rows, classes = HUGE
    edges = torch.tensor([0, 1, rows - 2, rows - 1], device=device)
    small = make_batch((4, classes), torch.float16).on(device)
    targets = torch.full((rows,), -100, device=device)
    targets[edges] = small.targets
    student, teacher = (torch.zeros(HUGE, dtype=torch.float16, device=device) for _ in range(2))
    student[edges], teacher[edges] = small.student, small.teacher
    yield edges, small, Batch(student, teacher, targets, small.prior)
    torch.cuda.empty_cache()


def test_places_beyond_32_bits(huge):
    edges, small, batch = huge
    loss, gradient = fused(batch, 3.0)
    assert_near((loss, gradient[edges]), reference_loss_and_grad(small, 3.0, torch.float64))
    assert not gradient[2:-2].any()


def test_cache_places_beyond_32_bits(huge):
    edges, small, batch = huge
    cache = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior, dtype=torch.float16, log_rows=True)
    actual = fused((small.student, cache[edges], small.targets, None), 3.0)
    stored = fa.TeacherCache.from_logits(small.teacher, small.targets, small.prior, dtype=torch.float16, log_rows=True)
    expected = fused((small.student, stored[:], small.targets, None), 3.0)
    assert all(map(torch.equal, actual, expected))

"""Terms of weight 0, logits near the end of the range of float32, and tensors that have no memory."""

import math

import pytest
import torch

import fedasd_fast as fa
from fedasd_fast.kernels import loader
from tests.conftest import make_batch
from tests.inputs import op_arguments

IMPLEMENTATIONS = ["fused", "reference"]
DIVERGENCES = ["kl", "reverse_kl", "js"]


def freed(tensor):
    copy = tensor.clone()
    copy.untyped_storage().resize_(0)
    return copy


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("divergence", DIVERGENCES)
@pytest.mark.parametrize("cached", [False, True])
def test_a_distillation_of_weight_0_is_left_out(cached, divergence, implementation):
    """A teacher that excludes a class has an infinite divergence, and 0 times that is NaN."""
    batch = make_batch((6, 10), seed=3)
    excluded = next(c for c in range(10) if c not in batch.targets)
    batch.teacher[:, excluded] = -math.inf
    teacher = batch.teacher
    if cached:
        teacher = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior)[:]
    loss, gradient = fa.asd_loss_and_grad(
        batch.student, teacher, batch.targets, batch.prior, 0.0, divergence=divergence, implementation=implementation
    )
    alone = fa.asd_loss_and_grad(batch.student, None, batch.targets, None, 0.0, implementation=implementation)
    torch.testing.assert_close((loss, gradient), alone)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("shape", [(4, 6), (2, 4, 6)])
@pytest.mark.parametrize("with_teacher", [False, True])
def test_both_weights_0(with_teacher, shape, implementation):
    batch = make_batch(shape)
    student = batch.student.clone()
    student[..., 0, 0] = math.inf
    teacher, prior = (batch.teacher, batch.prior) if with_teacher else (None, None)
    options = dict(asd_weight=0.0, ce_weight=0.0, implementation=implementation, client_dim=batch.client_dim)
    loss, gradient = fa.asd_loss_and_grad(student, teacher, batch.targets, prior, **options)
    assert loss.shape == shape[:-2]
    assert (loss == 0).all()
    assert (gradient == 0).all()
    leaf = student.requires_grad_()
    fa.asd_objective(leaf, teacher, batch.targets, prior, **options).sum().backward()
    assert (leaf.grad == 0).all()


@pytest.mark.parametrize("capability", ["avx512", "avx2", "generic"])
@pytest.mark.parametrize("divergence", DIVERGENCES)
@pytest.mark.parametrize("classes", [3, 40, 1500])
def test_a_loss_is_finite_where_float64_is(classes, divergence, capability):
    """The difference of two float32 logits can be too large for float32 although the loss is not."""
    active = fa.build_info()["cpu_capability"]
    if not loader.module.select_cpu_capability(capability):
        pytest.skip(f"this CPU has no {capability}")
    try:
        batch = make_batch((6, classes), seed=classes)
        huge = torch.where(torch.arange(classes) % 2 == 0, 3e38, -3e38).expand(6, -1)
        student, teacher = (huge, batch.teacher) if divergence == "kl" else (batch.student, huge)
        options = dict(asd_weight=0.5, ce_weight=0.2, temperature=4.0, divergence=divergence)
        loss, gradient = fa.asd_loss_and_grad(student, teacher, batch.targets, batch.prior, **options)
        expected, expected_gradient = fa.asd_loss_and_grad(
            student.double(), teacher.double(), batch.targets, batch.prior, **options, implementation="reference"
        )
        assert loss.isfinite()
        torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(gradient.double(), expected_gradient, rtol=1e-4, atol=1e-5)
    finally:
        loader.module.select_cpu_capability(active)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("name", ["student_logits", "teacher_logits", "targets", "label_prior"])
def test_a_tensor_without_memory_is_refused(name, implementation):
    batch = make_batch((4, 6))
    arguments = dict(zip(("student_logits", "teacher_logits", "targets", "label_prior"), batch, strict=True))
    arguments[name] = freed(arguments[name])
    with pytest.raises(ValueError, match=rf"^{name} has shape .*storage holds 0 of the \d+ bytes"):
        fa.asd_loss(**arguments, implementation=implementation)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("name", ["rows", "constant", "log_weight", "targets", "label_prior"])
def test_a_cache_without_memory_is_refused(name, implementation):
    batch = make_batch((4, 6))
    cache = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior)
    getattr(cache, name).untyped_storage().resize_(0)
    prior = batch.prior if name == "label_prior" else None
    with pytest.raises(ValueError, match=r"cache.* has shape .*storage holds 0"):
        fa.asd_loss(batch.student, cache[:], batch.targets, prior, implementation=implementation)


def test_row_numbers_and_given_proportions_without_memory():
    batch = make_batch((4, 6))
    cache = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior)
    with pytest.raises(ValueError, match=r"rows has shape .*storage holds 0"):
        fa.asd_loss(batch.student, cache[freed(torch.arange(4))], batch.targets, None)
    with pytest.raises(ValueError, match=r"label_prior has shape .*storage holds 0"):
        fa.asd_loss(batch.student, cache[:], batch.targets, freed(batch.prior))
    for position, name in enumerate(("teacher_logits", "targets", "label_prior")):
        arguments = [batch.teacher, batch.targets, batch.prior]
        arguments[position] = freed(arguments[position])
        with pytest.raises(ValueError, match=rf"{name} has shape .*storage holds 0"):
            fa.TeacherCache.from_logits(*arguments)
    with pytest.raises(ValueError, match=r"targets has shape .*storage holds 0"):
        fa.label_prior(freed(batch.targets), 6)


def test_the_client_update_refuses_tensors_without_memory():
    w = torch.ones(4)
    with pytest.raises(ValueError, match=r"g has shape .*storage holds 0"):
        loader.module.local_step_(w, freed(w), None, None, None, None, None, 0.0, None, 0.0, 0.1, 0.0)
    with pytest.raises(ValueError, match=r"w has shape .*storage holds 0"):
        loader.module.local_step_(freed(w), w, None, None, None, None, None, 0.0, None, 0.0, 0.1, 0.0)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("rows", [2**64 // 12 + 1, 2**62])
def test_sizes_that_overflow_are_refused(rows, implementation):
    student = torch.zeros(1, 1).expand(rows, 1)
    targets = torch.zeros(1, dtype=torch.long).expand(rows)
    with pytest.raises(ValueError, match=r"student_logits has shape .*too large to compute with"):
        fa.asd_objective(student, None, targets, None, 0.0, implementation=implementation)
    with pytest.raises(ValueError, match=r"teacher_logits has shape .*too large to compute with"):
        fa.TeacherCache.from_logits(student, targets, torch.ones(1))


def test_rows_beyond_memory_are_refused():
    student = torch.zeros(1, 1).expand(2**40, 1)
    targets = torch.zeros(1, dtype=torch.long).expand(2**40)
    with pytest.raises(ValueError, match=r"student_logits has 1099511627776 rows .*no memory.*fewer rows"):
        fa.asd_objective(student, None, targets, None, 0.0)


@pytest.mark.parametrize("missing", [5, 6, 7])
def test_the_fake_kernel_refuses_rows_without_the_rest_of_the_cache(missing):
    arguments = list(op_arguments(make_batch((4, 6)), False, True))
    arguments[missing] = None
    for device in ("cpu", "meta"):
        moved = [x.to(device) if isinstance(x, torch.Tensor) else x for x in arguments]
        with pytest.raises(ValueError, match="rows is given without the rest of the cache"):
            torch.ops.fedasd.asd_objective(*moved)

"""The teacher cache on a GPU: built by the kernel as by the reference, and what differs from the CPU."""

import math

import pytest
import torch

import fedasd_fast as fa
from fedasd_fast.loss import reference
from fedasd_fast.loss.options import ASDOptions
from tests.conftest import make_batch
from tests.gpu.inputs import fused


@pytest.mark.parametrize("log_rows", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("not_true", [False, True])
@pytest.mark.parametrize("shape", [(9, 10), (5, 100), (400, 257), (2, 3000), (2, 4, 11), (0, 5), (3, 1)], ids=str)
def test_kernel_builds_what_the_reference_builds(log_rows, dtype, not_true, shape, device):
    batch = make_batch(shape, torch.float64, ignored=0.2).on(device)
    options = ASDOptions(entropy_power=0.7, prior_power=1.3, not_true=not_true)
    tensors = (batch.teacher, batch.targets, batch.prior)
    valid = batch.targets != -100
    tolerance = max(torch.finfo(dtype).eps, 1e-13)  # one rounding of the stored type
    built = torch.ops.fedasd.teacher_cache(*tensors, *options.teacher_key, -100, dtype, log_rows)
    for actual, expected in zip(built, reference.teacher_cache(*tensors, options, dtype, log_rows), strict=True):
        assert actual.dtype == expected.dtype
        torch.testing.assert_close(actual[valid], expected[valid], rtol=tolerance, atol=tolerance)
    assert not built[0][~valid].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("classes", [10, 1000, 1500])
def test_cache_of_float32_and_half_logits(dtype, classes, device):
    """Computed in float32: the truth is the reference in float64, of the same numbers."""
    batch = make_batch((20, classes), dtype).on(device)
    options = ASDOptions()
    stored = (torch.float32, False)  # dtype, log_rows
    tensors = (batch.teacher, batch.targets, batch.prior)
    actual = torch.ops.fedasd.teacher_cache(*tensors, *options.teacher_key, -100, *stored)
    expected = reference.teacher_cache(batch.teacher.double(), batch.targets, batch.prior.double(), options, *stored)
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)], ids=str)
def test_half_rows_are_close(dtype, tolerance, device):
    batch = make_batch((300, 100)).on(device)
    cache = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior, dtype=dtype)
    loss, gradient = fused((batch.student, cache[:], batch.targets, None), 1.0)
    expected = fused(batch, 1.0)
    torch.testing.assert_close(loss, expected[0], rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(gradient, expected[1], rtol=tolerance, atol=tolerance / 10)
    assert fa.asd_loss(batch.teacher, cache[:], batch.targets, None).item() < 1e-5


def test_padded_rows_need_no_cache_row(device):
    batch = make_batch((6, 10)).on(device)
    cache = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior)
    rows = torch.tensor([0, 1, 2, -1], device=device)
    targets = torch.cat([batch.targets[:3], torch.tensor([-100], device=device)])
    loss = fa.asd_loss(batch.student[:4], cache[rows], targets, None)
    torch.testing.assert_close(loss, fa.asd_loss(batch.student[:3], cache[:3], batch.targets[:3], None))


def test_reverse_kl_on_an_underflowed_probability_is_infinite(device):
    """The CPU refuses this with an error; a kernel cannot without a synchronisation."""
    batch = make_batch((4, 6)).on(device)
    batch.teacher[0, 2] -= 500.0
    batch.targets.fill_(0)
    cache = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior)
    options = dict(divergence="reverse_kl")
    assert fa.asd_loss(batch.student, cache[:], batch.targets, None, **options).item() == math.inf
    exact = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior, log_rows=True)
    expected = fa.asd_loss(*batch, **options)
    torch.testing.assert_close(fa.asd_loss(batch.student, exact[:], batch.targets, None, **options), expected)

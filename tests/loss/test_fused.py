"""The fused op against the reference: values and gradients over the option matrix, accuracy in every dtype."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedasd_fast as fa
from tests.conftest import Batch, client_dim, make_batch, reference_loss_and_grad
from tests.inputs import HARD, OPTIONS, distance, odd_layouts

SHAPES = [
    (7, 10), (40, 33), (5, 100), (3, 1), (1, 2), (0, 5), (9, 1024), (3, 1025), (2, 2500),
    (4, 6, 10), (3, 9, 50), (0, 4, 5), (2, 0, 5), (50, 3, 17),
]  # fmt: skip


def fused(batch, *weights, **keywords):
    student = next(iter(batch))
    return fa.asd_loss_and_grad(*batch, *weights, implementation="fused", client_dim=client_dim(student), **keywords)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_value_and_gradient(shape, dtype, capability):
    batch = make_batch(shape, dtype, ignored=0.2)
    tolerance = dict(rtol=1e-11, atol=1e-12) if dtype == torch.float64 else dict(rtol=1e-4, atol=2e-5)
    for options, weights in zip(OPTIONS, itertools.cycle([(3.0, 0.7), (1.0, 0.0), (0.5, 1.0), (0.0, 1.0)])):
        actual = fused(batch, *weights, **options)
        expected = reference_loss_and_grad(batch, weights[0], torch.float64, ce_weight=weights[1], **options)
        for ours, theirs in zip(actual, expected, strict=True):
            torch.testing.assert_close(ours.double(), theirs, **tolerance, msg=lambda m, o=options: f"{o}: {m}")


def test_powers_enter_the_weights():
    batch = make_batch((20, 12), torch.float64)
    for powers in ((0.0, 1.0), (1.0, 0.0), (2.5, 0.3), (-1.0, 1.0)):
        options = dict(entropy_power=powers[0], prior_power=powers[1])
        for actual, expected in zip(
            fused(batch, 2.0, **options), reference_loss_and_grad(batch, 2.0, **options), strict=True
        ):
            torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("divergence", ["kl", "reverse_kl", "js"])
@pytest.mark.parametrize("not_true", [False, True])
def test_float32_is_as_accurate_as_eager(name, divergence, not_true, capability):
    """At most 1.5 times the eager reference's distance to the float64 truth, plus 1e-7 of the weight.

    Of the worst of several batches: which way a single loss is rounded to float32 is luck on both sides.
    """
    options = dict(divergence=divergence, not_true=not_true)
    for weights in ((1.0, 0.0), (0.0, 1.0), (30.0, 1.0)):
        ours, theirs = [], []
        for seed in range(8):
            batch = HARD[name](seed)
            truth = reference_loss_and_grad(batch, weights[0], torch.float64, ce_weight=weights[1], **options)
            eager = reference_loss_and_grad(batch, weights[0], ce_weight=weights[1], **options)
            result = fused(batch, *weights, **options)
            ours.append([distance(x, y) for x, y in zip(result, truth, strict=True)])
            theirs.append([distance(x, y) for x, y in zip(eager, truth, strict=True)])
        for kind, worst, eager_worst in zip(("loss", "gradient"), map(max, *ours), map(max, *theirs), strict=True):
            assert worst <= 1.5 * eager_worst + 1e-7 * max(weights), (kind, weights)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("divergence", ["kl", "reverse_kl", "js"])
@pytest.mark.parametrize("shape", [(32, 10), (32, 100), (3, 2500)], ids=str)
def test_half_precision_is_as_accurate_as_eager(dtype, divergence, shape, capability):
    """No further from the float64 truth of the same half inputs than the reference, which computes in float32."""
    batch = make_batch(shape, dtype, ignored=0.1)
    truth = reference_loss_and_grad(batch, 30.0, torch.float64, divergence=divergence)
    eager = reference_loss_and_grad(batch, 30.0, divergence=divergence)
    loss, gradient = fused(batch, 30.0, divergence=divergence)
    assert loss.dtype == torch.float32
    assert gradient.dtype == dtype
    assert distance(loss, truth[0]) <= 1.5 * distance(eager[0], truth[0]) + 1e-6
    assert distance(gradient, truth[1]) <= 1.01 * distance(eager[1], truth[1]) + 1e-7


@pytest.mark.parametrize("divergence", ["kl", "reverse_kl", "js"])
@pytest.mark.parametrize("shape", [(16, 10), (16, 100), (2, 3000)], ids=str)
def test_student_equal_to_teacher_is_exactly_zero(divergence, shape, capability):
    batch = make_batch(shape)
    loss, gradient = fused(
        Batch(batch.teacher, batch.teacher, batch.targets, batch.prior), 30.0, 0.0, divergence=divergence
    )
    assert loss.item() == 0 if divergence == "kl" else abs(loss.item()) < 1e-6
    assert (gradient == 0).all()


def test_weight_zero_is_cross_entropy_bit_for_bit():
    batch = make_batch((16, 10))
    other = make_batch((16, 10), seed=1)
    results = [
        fused(Batch(batch.student, teacher, batch.targets, batch.prior), 0.0)
        for teacher in (batch.teacher, other.teacher)
    ]
    for first, second in zip(*results, strict=True):
        assert torch.equal(first, second)
    torch.testing.assert_close(results[0][0], torch.nn.functional.cross_entropy(batch.student, batch.targets))


def test_large_number_of_classes():
    batch = make_batch((2, 200_000))
    for actual, expected in zip(fused(batch, 5.0), reference_loss_and_grad(batch, 5.0, torch.float64), strict=True):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(6, 10), (6, 100), (3, 4, 40), (2, 1500)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_any_memory_layout(shape, dtype, capability):
    batch = make_batch(shape, dtype)
    plain = fused(batch, 3.0)
    for student, teacher in zip(odd_layouts(batch.student), odd_layouts(batch.teacher), strict=True):
        for actual, expected in zip(
            fused(Batch(student, teacher, batch.targets, batch.prior), 3.0), plain, strict=True
        ):
            assert torch.equal(actual, expected)
            assert actual.is_contiguous()


def test_expanded_inputs_and_int32_labels():
    batch = make_batch((5, 12))
    rows = Batch(
        batch.student, batch.teacher[:1].expand(5, 12), batch.targets[:1].expand(5), batch.prior[:1].expand(12)
    )
    solid = Batch(*(x.contiguous() for x in rows))
    for actual, expected in zip(fused(rows, 3.0), fused(solid, 3.0), strict=True):
        assert torch.equal(actual, expected)
    narrow = Batch(batch.student, batch.teacher, batch.targets.int(), batch.prior)
    assert torch.equal(fused(narrow, 3.0)[1], fused(batch, 3.0)[1])


def test_teacher_and_student_may_differ_in_dtype():
    batch = make_batch((6, 20), torch.float64)
    for student, teacher in (
        (torch.float32, torch.bfloat16),
        (torch.bfloat16, torch.float32),
        (torch.float64, torch.float32),
    ):
        mixed = Batch(batch.student.to(student), batch.teacher.to(teacher), batch.targets, batch.prior)
        loss, gradient = fused(mixed, 3.0)
        assert gradient.dtype == student
        torch.testing.assert_close(loss, reference_loss_and_grad(mixed, 3.0)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(4, 10), (4, 100)], ids=str)
def test_ignored_rows_may_hold_anything(shape, capability):
    batch = make_batch(shape)
    clean = fused(batch, 3.0)
    dirty = Batch(*(torch.cat([x, torch.full_like(x, math.nan)]) for x in (batch.student, batch.teacher)),
                  torch.cat([batch.targets, torch.full_like(batch.targets, -100)]), batch.prior)  # fmt: skip
    loss, gradient = fused(dirty, 3.0)
    assert torch.equal(loss, clean[0])
    assert torch.equal(gradient[:4], clean[1])
    assert (gradient[4:] == 0).all()


@pytest.mark.parametrize("shape", [(3, 10), (3, 100)], ids=str)
@pytest.mark.parametrize(("where", "divergence"), [("student", "kl"), ("teacher", "reverse_kl")])
def test_excluded_classes_are_infinitely_far(shape, where, divergence, capability):
    batch = make_batch(shape)
    getattr(batch, where)[1, 4] = -math.inf
    batch.targets.fill_(0)
    assert fused(batch, 1.0, 0.0, divergence=divergence)[0].item() == math.inf


def test_batch_without_valid_row_gives_zero():
    batch = make_batch((4, 10))
    batch.targets.fill_(-100)
    loss, gradient = fused(batch, 3.0)
    assert loss.item() == 0
    assert (gradient == 0).all()


@pytest.mark.parametrize("where", ["student", "teacher"])
@pytest.mark.parametrize("shape", [(3, 10), (3, 100)], ids=str)
def test_nan_logits_are_not_hidden(where, shape, capability):
    batch = make_batch(shape)
    getattr(batch, where)[1, 4] = math.nan
    loss, gradient = fused(batch, 3.0)
    assert loss.isnan()
    assert gradient[1].isnan().any()


@pytest.mark.parametrize("shape", [(300, 500), (40, 20, 100), (3, 200, 70)], ids=str)
def test_result_does_not_depend_on_threads(shape):
    batch = make_batch(shape, ignored=0.1)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            results.append(fused(batch, 3.0))
    finally:
        torch.set_num_threads(before)
    for loss, gradient in results[1:]:
        assert torch.equal(loss, results[0][0])
        assert torch.equal(gradient, results[0][1])


def test_each_client_is_normalised_on_its_own():
    batch = make_batch((4, 6, 30), ignored=0.2)
    loss, gradient = fused(batch, 3.0)
    for k in range(4):
        one = fused(Batch(*(x[k] for x in batch)), 3.0)
        assert torch.equal(loss[k], one[0])
        assert torch.equal(gradient[k], one[1])


def test_inputs_are_not_written():
    batch = make_batch((6, 40))
    copies = [x.clone() for x in batch]
    student = batch.student.requires_grad_()
    fa.asd_objective(*batch, 3.0, implementation="fused").backward()
    for now, before in zip((student.detach(), *list(batch)[1:]), copies, strict=True):
        assert torch.equal(now, before)


@settings(max_examples=150, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 4), st.integers(0, 9), st.integers(1, 70)),
    seed=st.integers(0, 2**31),
    scale=st.sampled_from([0.0, 0.1, 3.0, 100.0]),
    ignored=st.sampled_from([0.0, 0.3, 1.0]),
    temperature=st.floats(0.1, 20),
    entropy_temperature=st.floats(0.1, 20),
    powers=st.tuples(st.floats(-2, 3), st.floats(-2, 3)),
    divergence=st.sampled_from(["kl", "reverse_kl", "js"]),
    weighting=st.sampled_from(["adaptive", "uniform"]),
    not_true=st.booleans(),
    ce_weight=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_any_setting_equals_the_reference(
    shape, seed, scale, ignored, temperature, entropy_temperature, powers, divergence, weighting, not_true, ce_weight
):
    batch = make_batch(shape, torch.float64, scale=scale, ignored=ignored, seed=seed)
    options = dict(
        temperature=temperature, entropy_temperature=entropy_temperature,
        entropy_power=powers[0], prior_power=powers[1], divergence=divergence, weighting=weighting,
        not_true=not_true, ce_weight=ce_weight,
    )  # fmt: skip
    expected = reference_loss_and_grad(batch, 2.0, **options)
    for actual, wanted in zip(fused(batch, 2.0, **options), expected, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-8, atol=1e-9)

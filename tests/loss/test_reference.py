"""The reference against arithmetic written out by hand, and the properties the paper's loss has."""

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import fedasd_fast as fa
from fedasd_fast.loss import reference
from tests.conftest import make_batch

DIVERGENCES = ("kl", "reverse_kl", "js")


def by_hand(z, t, y, p, tau, tau_h, divergence, not_true, adaptive):
    """ASD of one batch in plain Python floats, straight from the paper."""

    def softmax(logits, temperature):
        exps = [math.exp(x / temperature) for x in logits]
        return [e / sum(exps) for e in exps]

    def kl(a, b):
        return sum(x * math.log(x / y) for x, y in zip(a, b, strict=True))

    weights, values = [], []
    for zi, ti, yi in zip(z, t, y, strict=True):
        h = softmax(ti, tau_h)
        entropy = -sum(x * math.log(x) for x in h)
        weights.append(math.exp(-entropy) / p[yi] if adaptive else 1.0)
        keep = [c for c in range(len(zi)) if not (not_true and c == yi)]
        s, q = softmax([ti[c] for c in keep], tau), softmax([zi[c] for c in keep], tau)
        m = [(a + b) / 2 for a, b in zip(s, q, strict=True)]
        values.append({"kl": kl(s, q), "reverse_kl": kl(q, s), "js": (kl(s, m) + kl(q, m)) / 2}[divergence])
    return sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)


@pytest.mark.parametrize("divergence", DIVERGENCES)
@pytest.mark.parametrize("not_true", [False, True])
@pytest.mark.parametrize("weighting", ["adaptive", "uniform"])
def test_equals_arithmetic_by_hand(divergence, not_true, weighting):
    batch = make_batch((5, 4), torch.float64, scale=1.5)
    expected = by_hand(*(x.tolist() for x in batch), 2.0, 1.0, divergence, not_true, weighting == "adaptive")
    loss = reference.asd_loss(*batch, divergence=divergence, not_true=not_true, weighting=weighting)
    assert loss.item() == pytest.approx(expected, rel=1e-12)


def test_weights_sum_to_one_and_follow_entropy_and_share():
    batch = make_batch((6, 5), torch.float64, ignored=0.3)
    valid = batch.targets != -100
    log_weight = reference.log_weights(batch.teacher, batch.targets.clamp_min(0), batch.prior)
    alpha = reference.normalised_weights(log_weight, valid)
    assert alpha.sum().item() == pytest.approx(1, abs=1e-15)
    assert (alpha[~valid] == 0).all()
    entropy, share = reference.entropy(batch.teacher), batch.prior[batch.targets.clamp_min(0)]
    expected = torch.exp(-entropy) / share
    torch.testing.assert_close(alpha[valid], (expected / expected[valid].sum())[valid])


def test_uniform_shares_and_constant_entropy_give_the_mean():
    batch = make_batch((7, 5), torch.float64)
    teacher = torch.stack([torch.roll(batch.teacher[0], k) for k in range(7)])  # same entropy in every row
    prior = torch.full((5,), 0.2, dtype=torch.float64)
    adaptive = reference.asd_loss(batch.student, teacher, batch.targets, prior)
    uniform = reference.asd_loss(batch.student, teacher, batch.targets, None, weighting="uniform")
    torch.testing.assert_close(adaptive, uniform)


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_student_equal_to_teacher_gives_zero(divergence):
    batch = make_batch((4, 6), torch.float64)
    student = batch.teacher.clone().requires_grad_()
    loss = reference.asd_loss(student, batch.teacher, batch.targets, batch.prior, divergence=divergence)
    (gradient,) = torch.autograd.grad(loss, student)
    assert abs(loss.item()) < 1e-15
    assert gradient.abs().max() < 1e-15


def test_not_true_does_not_see_the_true_logit():
    batch = make_batch((4, 6), torch.float64)
    moved = batch.student.scatter_add(1, batch.targets[:, None], torch.full((4, 1), 5.0, dtype=torch.float64))
    losses = [
        reference.asd_loss(z, batch.teacher, batch.targets, batch.prior, not_true=True) for z in (batch.student, moved)
    ]
    torch.testing.assert_close(*losses)


@pytest.mark.parametrize("divergence", DIVERGENCES)
@pytest.mark.parametrize("not_true", [False, True])
def test_first_and_second_derivatives(divergence, not_true):
    batch = make_batch((3, 4), torch.float64, ignored=0.2, scale=1.0)

    def objective(student):
        return reference.asd_objective(
            student, batch.teacher, batch.targets, batch.prior, 2.0, divergence=divergence, not_true=not_true
        )

    student = batch.student.requires_grad_()
    assert gradcheck(objective, student)
    assert gradgradcheck(objective, student)


def test_half_precision_is_computed_in_float32():
    batch = make_batch((4, 6), torch.bfloat16)
    loss = reference.asd_objective(*batch, 3.0)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, reference.asd_objective(*batch.to(torch.float32), 3.0))


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_masked_classes_stay_finite(divergence):
    batch = make_batch((4, 6), torch.float64)
    batch.targets.clamp_(max=3)
    for logits in (batch.student, batch.teacher):
        logits[:, 4:] = -math.inf
    student = batch.student.requires_grad_()
    loss = reference.asd_objective(student, batch.teacher, batch.targets, batch.prior, 2.0, divergence=divergence)
    small = make_batch((4, 6), torch.float64)
    expected = reference.asd_objective(
        small.student[:, :4], small.teacher[:, :4], batch.targets, small.prior[:4], 2.0, divergence=divergence
    )
    torch.testing.assert_close(loss, expected)
    (gradient,) = torch.autograd.grad(loss, student)
    assert torch.isfinite(gradient).all()
    assert (gradient[:, 4:] == 0).all()


def test_student_that_excludes_what_the_teacher_allows_is_infinitely_far():
    batch = make_batch((2, 4), torch.float64)
    batch.student[0, 2] = -math.inf
    assert reference.asd_loss(*batch).item() == math.inf


def test_compiled_reference_clamps_a_share_of_zero():
    """Compiled code cannot read values: a share of 0 counts as the smallest positive one."""
    batch = make_batch((4, 5), torch.float64)
    batch.targets.fill_(1)
    broken = batch.prior.clone()
    broken[1] = 0
    compiled = torch.compile(reference.asd_loss, backend="aot_eager", fullgraph=True)
    mended = broken.clone()
    mended[1] = broken[broken > 0].min()
    loss = compiled(batch.student, batch.teacher, batch.targets, broken)
    torch.testing.assert_close(loss, reference.asd_loss(batch.student, batch.teacher, batch.targets, mended))


def test_an_ignore_index_of_more_than_32_bits():
    """Compared with an int32 label it would be cut down to 0, a class."""
    batch = make_batch((5, 4))
    targets = torch.tensor([0, 1, 0, 2, 3], dtype=torch.int32)
    expected = fa.asd_objective(batch.student, batch.teacher, targets, batch.prior, 1.0)
    for implementation in ("fused", "reference"):
        loss = fa.asd_objective(
            batch.student, batch.teacher, targets, batch.prior, 1.0, ignore_index=2**40, implementation=implementation
        )
        torch.testing.assert_close(loss, expected)
    assert torch.equal(fa.label_prior(targets, 4, ignore_index=2**40), torch.tensor([0.4, 0.2, 0.2, 0.2]))

"""The teacher cache: same loss and gradient as raw logits, and refusal of what it was not built for."""

import math

import pytest
import torch
from torch import nn

import fedasd_fast as fa
from fedasd_fast.loss import reference
from fedasd_fast.loss.options import ASDOptions
from tests.conftest import Batch, make_batch


def shuffled(batch, seed=0):
    """A cache over all rows, and a batch of some of them in another order."""
    rows = torch.stack([torch.randperm(batch.student.shape[-2], generator=torch.Generator().manual_seed(seed + k))[:5]
                        for k in range(max(1, batch.student[..., 0, 0].numel()))])  # fmt: skip
    rows = rows if batch.student.dim() == 3 else rows[0]
    wide = rows.unsqueeze(-1).expand(*rows.shape, batch.student.shape[-1])
    return rows, Batch(
        batch.student.gather(-2, wide), batch.teacher.gather(-2, wide), batch.targets.gather(-1, rows), batch.prior
    )


@pytest.mark.parametrize("shape", [(9, 10), (9, 100), (7, 1500), (3, 9, 12), (2, 9, 50)], ids=str)
@pytest.mark.parametrize("divergence", ["kl", "reverse_kl", "js"])
@pytest.mark.parametrize("not_true", [False, True])
@pytest.mark.parametrize("weighting", ["adaptive", "uniform"])
@pytest.mark.parametrize("log_rows", [False, True])
def test_cached_equals_raw(shape, divergence, not_true, weighting, log_rows, capability):
    full = make_batch(shape)
    cache = fa.TeacherCache.from_logits(
        full.teacher, full.targets, full.prior, not_true=not_true, log_rows=log_rows, client_dim=full.client_dim
    )
    rows, batch = shuffled(full)
    options = dict(divergence=divergence, not_true=not_true, weighting=weighting, client_dim=full.client_dim)
    loss, gradient = fa.asd_loss_and_grad(*batch, 3.0, **options)
    cached_loss, cached_gradient = fa.asd_loss_and_grad(batch.student, cache[rows], batch.targets, None, 3.0, **options)
    torch.testing.assert_close(cached_loss, loss, rtol=1e-6, atol=1e-6)
    if divergence == "kl" and not log_rows:
        assert torch.equal(cached_gradient, gradient)  # the very same arithmetic
    else:
        torch.testing.assert_close(cached_gradient, gradient, rtol=1e-5, atol=1e-6)
    expected = reference.asd_objective(batch.student, cache[rows], batch.targets, None, 3.0, **options)
    torch.testing.assert_close(cached_loss, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("log_rows", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("not_true", [False, True])
def test_kernel_builds_what_the_reference_builds(log_rows, dtype, not_true, capability):
    for shape in ((9, 10), (5, 100), (2, 3000), (2, 4, 11)):
        batch = make_batch(shape, torch.float64, ignored=0.2)
        options = ASDOptions(entropy_power=0.7, prior_power=1.3, not_true=not_true)
        tensors = (batch.teacher, batch.targets, batch.prior)
        valid = batch.targets != -100
        tolerance = max(torch.finfo(dtype).eps, 1e-13)  # one rounding of the stored type
        built = torch.ops.fedasd.teacher_cache(*tensors, *options.teacher_key, -100, dtype, log_rows)
        for actual, expected in zip(built, reference.teacher_cache(*tensors, options, dtype, log_rows), strict=True):
            assert actual.dtype == expected.dtype
            torch.testing.assert_close(actual[valid], expected[valid], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)], ids=str)
def test_half_rows_are_close_and_smaller(dtype, tolerance):
    batch = make_batch((16, 100))
    cache = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior, dtype=dtype)
    full = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior)
    assert cache.nbytes < 0.6 * full.nbytes
    for implementation in ("fused", "reference"):
        loss, gradient = fa.asd_loss_and_grad(
            batch.student, cache[:], batch.targets, None, 1.0, implementation=implementation
        )
        expected = fa.asd_loss_and_grad(*batch, 1.0)
        torch.testing.assert_close(loss, expected[0], rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(gradient, expected[1], rtol=tolerance, atol=tolerance / 10)
    equal = fa.asd_loss(batch.teacher, cache[:], batch.targets, None)
    assert equal.item() < 1e-6


def test_build_runs_the_model_once_in_eval_mode_and_restores_every_module():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls, self.rows = [], 0
            self.body = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.9), nn.Linear(16, 5))

        def forward(self, x):
            self.calls.append(self.training)
            self.rows += len(x)
            return self.body(x)

    torch.manual_seed(0)
    model = Net().train()
    model.body[1].eval()  # a frozen normalisation layer inside a training model
    before = [m.training for m in model.modules()]
    statistics = model.body[1].running_mean.clone()
    inputs, targets = torch.randn(30, 8), torch.randint(0, 5, (30,))
    prior = fa.label_prior(targets, 5)
    cache = fa.TeacherCache.build(model, inputs, targets, prior, batch_size=7)
    assert model.rows == 30
    assert not any(model.calls)
    assert [m.training for m in model.modules()] == before
    assert torch.equal(statistics, model.body[1].running_mean)
    assert not cache.rows.requires_grad
    with torch.no_grad():
        logits = model.eval()(inputs)
    expected = fa.TeacherCache.from_logits(logits, targets, prior)
    torch.testing.assert_close(cache.rows, expected.rows)
    assert len(cache) == 30
    assert cache.nbytes == 30 * 5 * 4 + 30 * (8 + 8 + 8) + 5 * 4


def test_build_for_many_clients():
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    inputs, targets = torch.randn(6, 10, 4), torch.randint(0, 3, (6, 10))
    prior = fa.label_prior(targets, 3, client_dim=0)
    cache = fa.TeacherCache.build(model, inputs, targets, prior, batch_size=13, client_dim=0)
    student = torch.randn(6, 10, 3)
    with torch.no_grad():
        expected = fa.asd_loss(student, model(inputs), targets, prior, client_dim=0)
    torch.testing.assert_close(fa.asd_loss(student, cache[:], targets, None, client_dim=0), expected)


def test_model_that_fails_leaves_its_mode_alone():
    model = nn.Linear(4, 3).train()
    with pytest.raises(RuntimeError):
        fa.TeacherCache.build(model, torch.randn(5, 7), torch.zeros(5, dtype=torch.long), torch.ones(3) / 3)
    assert model.training


def test_model_must_return_logits():
    class Pair(nn.Linear):
        def forward(self, x):
            return super().forward(x), x

    targets, prior = torch.zeros(5, dtype=torch.long), torch.ones(3) / 3
    with pytest.raises(ValueError, match="returned tuple"):
        fa.TeacherCache.build(Pair(4, 3), torch.randn(5, 4), targets, prior)
    with pytest.raises(ValueError, match="one input for each of the targets"):
        fa.TeacherCache.build(nn.Linear(4, 3), torch.randn(6, 4), targets, prior)
    with pytest.raises(ValueError, match="batch_size = 0"):
        fa.TeacherCache.build(nn.Linear(4, 3), torch.randn(5, 4), targets, prior, batch_size=0)


@pytest.mark.parametrize("implementation", ["fused", "reference"])
@pytest.mark.parametrize(
    "other",
    [
        dict(temperature=3.0),
        dict(entropy_temperature=2.0),
        dict(entropy_power=0.5),
        dict(prior_power=0.0),
        dict(not_true=True),
    ],
    ids=str,
)
def test_other_hyper_parameters_are_refused(implementation, other):
    batch = make_batch((6, 10))
    cache = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior)
    with pytest.raises(ValueError, match=f"{next(iter(other))} = .* was built with"):
        fa.asd_loss(batch.student, cache[:], batch.targets, None, implementation=implementation, **other)


@pytest.mark.parametrize("implementation", ["fused", "reference"])
def test_other_labels_rows_and_priors_are_refused(implementation):
    batch = make_batch((6, 10))
    cache = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior)

    def loss(targets=batch.targets, rows=slice(None), prior=None, student=batch.student):
        return fa.asd_loss(student, cache[rows], targets, prior, implementation=implementation)

    assert torch.equal(loss(), loss(prior=batch.prior))
    with pytest.raises(ValueError, match="built with label"):
        loss(targets=(batch.targets + 1) % 10)
    with pytest.raises(ValueError, match="outside the teacher cache"):
        loss(rows=torch.tensor([0, 1, 2, 3, 4, 6]))
    with pytest.raises(ValueError, match="outside the teacher cache"):
        loss(rows=torch.tensor([0, 1, 2, 3, 4, -1]))
    with pytest.raises(ValueError, match="label_prior differs"):
        loss(prior=batch.prior.flip(0))
    with pytest.raises(ValueError, match="one cache row for each"):
        loss(rows=torch.arange(5))
    with pytest.raises(ValueError, match="the teacher cache has shape"):
        loss(student=torch.randn(6, 11))
    with pytest.raises(IndexError, match="mask"):
        loss(rows=torch.ones(6, dtype=torch.bool))


def test_row_numbers_may_be_lists_slices_or_int32():
    batch = make_batch((6, 10))
    cache = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior)
    expected = fa.asd_loss(batch.student[1:4], cache[torch.tensor([1, 2, 3])], batch.targets[1:4], None)
    for rows in ([1, 2, 3], slice(1, 4), torch.tensor([1, 2, 3], dtype=torch.int32), range(1, 4)):
        assert torch.equal(fa.asd_loss(batch.student[1:4], cache[rows], batch.targets[1:4], None), expected)


def test_padded_rows_need_no_cache_row():
    batch = make_batch((6, 10))
    cache = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior)
    rows, targets = torch.tensor([0, 1, 2, -1]), torch.cat([batch.targets[:3], torch.tensor([-100])])
    loss = fa.asd_loss(batch.student[:4], cache[rows], targets, None)
    assert torch.equal(loss, fa.asd_loss(batch.student[:3], cache[:3], batch.targets[:3], None))


def test_reverse_kl_on_an_underflowed_probability_asks_for_logarithms():
    batch = make_batch((4, 6))
    batch.teacher[0, 2] -= 500.0
    options = dict(divergence="reverse_kl")
    cache = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior)
    with pytest.raises(ValueError, match="log_rows=True"):
        fa.asd_loss(batch.student, cache[:], batch.targets, None, **options)
    exact = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior, log_rows=True)
    expected = fa.asd_loss(*batch, **options)
    assert math.isfinite(expected)
    torch.testing.assert_close(fa.asd_loss(batch.student, exact[:], batch.targets, None, **options), expected)


def test_the_cache_keeps_its_own_labels_and_proportions():
    """Changed in place by their owner, they would still equal what is passed with the next call."""
    batch = make_batch((6, 10))
    targets, prior = batch.targets.clone(), batch.prior.clone()
    for cache in (
        fa.TeacherCache.from_logits(batch.teacher, targets, prior),
        fa.TeacherCache.build(nn.Identity(), batch.teacher, targets, prior),
    ):
        before = fa.asd_loss(batch.student, cache[:], targets, prior)
        targets += 1
        targets %= 10
        with pytest.raises(ValueError, match="built with label"):
            fa.asd_loss(batch.student, cache[:], targets, None)
        prior *= 0.5
        with pytest.raises(ValueError, match="label_prior differs"):
            fa.asd_loss(batch.student, cache[:], batch.targets, prior)
        assert torch.equal(fa.asd_loss(batch.student, cache[:], batch.targets, batch.prior), before)
        targets.copy_(batch.targets)
        prior.copy_(batch.prior)


BUILD = dict(model=nn.Identity(), inputs=torch.randn(3, 4), targets=torch.tensor([0, 1, 2]), label_prior=torch.ones(4))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(model=lambda x: x), "^model is a function; expected a torch.nn.Module"),
        (dict(inputs=[1.0]), "^inputs is a list; expected a torch.Tensor"),
        (dict(targets=[0, 1, 2]), "^targets is a list; expected a torch.Tensor"),
        (dict(targets=torch.ones(3)), "^targets has dtype"),
        (dict(targets=torch.tensor(1)), r"^targets has shape \(\); expected \[N\]"),
        (dict(inputs=torch.randn(2, 4)), "^inputs has shape"),
        (dict(label_prior=None), "^label_prior is a NoneType; expected a torch.Tensor"),
        (dict(label_prior=torch.ones(4, dtype=torch.int64)), "^label_prior has dtype"),
        (dict(batch_size=2.5), "^batch_size is a float; expected an integer"),
        (dict(batch_size=0), "^batch_size = 0"),
        (dict(dtype="float32"), "^dtype = float32"),
        (dict(model=nn.Linear(4, 4, device="meta")), "^model is on meta"),
        (dict(inputs=torch.randn(3, 4, device="meta")), "^inputs is on meta|^model is on meta"),
    ],
    ids=str,
)
def test_build_names_the_wrong_argument(change, message):
    with pytest.raises((TypeError, ValueError), match=message):
        fa.TeacherCache.build(**{**BUILD, **change})


@pytest.mark.parametrize("divergence", ["kl", "reverse_kl", "js"])
@pytest.mark.parametrize("not_true", [False, True])
@pytest.mark.parametrize("log_rows", [False, True])
def test_ignored_rows_of_a_cache_take_part_in_nothing(log_rows, not_true, divergence):
    batch = make_batch((8, 10), torch.float64, ignored=0.4)
    assert (batch.targets == -100).any()
    tensors = (batch.teacher, batch.targets, batch.prior)
    cache = fa.TeacherCache.from_logits(*tensors, not_true=not_true, log_rows=log_rows, dtype=torch.float64)
    options = dict(not_true=not_true, divergence=divergence)
    expected = fa.asd_loss_and_grad(*batch, 3.0, **options, implementation="reference")
    for implementation in ("fused", "reference"):
        cached = fa.asd_loss_and_grad(
            batch.student, cache[:], batch.targets, None, 3.0, **options, implementation=implementation
        )
        torch.testing.assert_close(cached, expected)


def test_rounded_logarithms_give_the_same_loss_in_kernel_and_reference():
    batch = make_batch((8, 40))
    cache = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior, log_rows=True, dtype=torch.float16)
    results = [
        fa.asd_loss_and_grad(batch.student, cache[:], batch.targets, None, 3.0, implementation=implementation)
        for implementation in ("fused", "reference")
    ]
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)


def test_rows_may_not_go_backward():
    batch = make_batch((4, 6))
    cache = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior)
    with pytest.raises(TypeError, match="rows is a slice; expected row numbers"):
        cache[::-1]


def test_rows_that_were_ignored_as_a_class_are_not_used():
    """The cache holds nothing of them; another ignore_index must not make them valid."""
    batch = make_batch((6, 3))
    batch.targets[:3] = 0
    cache = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior, ignore_index=0)
    for implementation in ("fused", "reference"):
        options = dict(implementation=implementation)
        assert fa.asd_loss(batch.student, cache[:], batch.targets, None, ignore_index=0, **options).isfinite()
        with pytest.raises(ValueError, match=r"targets.* = 0, but the teacher cache was built with label -1"):
            fa.asd_loss(batch.student, cache[:], batch.targets, None, **options)

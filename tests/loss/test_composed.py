"""Label smoothing, class weights, reduction="none", and a module that keeps its label proportions."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import fedasd_fast as fa
from tests.conftest import make_batch

IMPLEMENTATIONS = ["fused", "reference"]
WEIGHTS = torch.tensor([0.2, 1.0, 3.0, 0.5, 1.5], dtype=torch.float64)
SMOOTH = [
    dict(label_smoothing=0.1),
    dict(class_weights=WEIGHTS),
    dict(label_smoothing=0.3, class_weights=WEIGHTS),
    dict(label_smoothing=1, class_weights=WEIGHTS),
]


def torch_cross_entropy(batch, label_smoothing=0.0, class_weights=None, **keywords):
    return F.cross_entropy(
        batch.student, batch.targets, weight=class_weights, label_smoothing=label_smoothing, **keywords
    )


def gradient_of(loss, student):
    return torch.autograd.grad(loss.sum(), student)[0]


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("options", SMOOTH, ids=str)
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_cross_entropy_is_torchs(implementation, options, reduction):
    batch = make_batch((9, 5), torch.float64, ignored=0.3)
    batch.student.requires_grad_()
    keywords = dict(implementation=implementation, **options)
    ours = fa.asd_objective(batch.student, None, batch.targets, None, 0.0, reduction=reduction, **keywords)
    theirs = torch_cross_entropy(batch, **options, reduction=reduction)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient_of(ours, batch.student), gradient_of(theirs, batch.student))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("options", SMOOTH, ids=str)
@pytest.mark.parametrize("cached", [False, True])
def test_objective_is_cross_entropy_and_asd(implementation, options, cached):
    batch = make_batch((9, 5), torch.float64, ignored=0.2)
    batch.student.requires_grad_()
    teacher, prior = batch.teacher, batch.prior
    if cached:
        teacher, prior = fa.TeacherCache.from_logits(teacher, batch.targets, prior)[:], None
    arguments = (batch.student, teacher, batch.targets, prior)
    keywords = dict(implementation=implementation, **options)
    ours = fa.asd_objective(*arguments, 3.0, ce_weight=0.5, **keywords)
    expected = 0.5 * torch_cross_entropy(batch, **options) + 3 * fa.asd_loss(*arguments)
    torch.testing.assert_close(ours, expected)
    expected_gradient = gradient_of(expected, batch.student)
    torch.testing.assert_close(gradient_of(ours, batch.student), expected_gradient)
    loss, gradient = fa.asd_loss_and_grad(*arguments, 3.0, 0.5, **keywords)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(gradient, expected_gradient)
    module = fa.ASDLoss(3.0, ce_weight=0.5, **keywords)
    assert torch.equal(module(*arguments), ours)


def test_no_smoothing_and_no_weights_are_the_fused_bits():
    batch = make_batch((9, 5))
    for zero in (0, 0.0, False):
        for ours, plain in zip(
            fa.asd_loss_and_grad(*batch, 3.0, label_smoothing=zero), fa.asd_loss_and_grad(*batch, 3.0), strict=True
        ):
            assert torch.equal(ours, plain)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_every_client_has_its_own_mean(implementation):
    batch = make_batch((3, 7, 5), torch.float64, ignored=0.3)
    batch.targets[1] = -100
    batch.student[1] = torch.nan  # ignored rows may hold anything
    options = dict(label_smoothing=0.1, class_weights=WEIGHTS, implementation=implementation)
    loss, gradient = fa.asd_loss_and_grad(*batch, 3.0, client_dim=0, **options)
    for k in (0, 2):
        own = [tensor[k] for tensor in batch]
        one, slope = fa.asd_loss_and_grad(*own, 3.0, **options)
        torch.testing.assert_close(loss[k], one)
        torch.testing.assert_close(gradient[k], slope)
    assert loss[1] == 0
    assert not gradient[1].any()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    ("divergence", "weighting"), list(itertools.product(["kl", "reverse_kl", "js"], ["adaptive", "uniform"]))
)
@pytest.mark.parametrize("shape", [(9, 5), (3, 7, 5)], ids=str)
def test_terms_average_to_the_loss(implementation, divergence, weighting, shape):
    batch = make_batch(shape, torch.float64, ignored=0.2)
    valid = batch.targets != -100
    student = batch.student.requires_grad_()
    keywords = dict(
        divergence=divergence, weighting=weighting, implementation=implementation, client_dim=batch.client_dim
    )
    for call in (lambda **options: fa.asd_loss(*batch, **options), lambda **o: fa.asd_objective(*batch, 3.0, **o)):
        terms, loss = call(reduction="none", **keywords), call(**keywords)
        assert terms.shape == batch.targets.shape
        assert not terms[~valid].any()
        mean = terms.sum(-1) / valid.sum(-1)
        torch.testing.assert_close(mean, loss)
        torch.testing.assert_close(gradient_of(mean, student), gradient_of(loss, student))


def test_a_term_is_the_relative_weight_times_the_divergence():
    batch = make_batch((9, 5), torch.float64)
    log_weight = fa.reference.log_weights(batch.teacher, batch.targets, batch.prior)
    relative = log_weight.exp() / log_weight.exp().mean()
    divergences = fa.asd_loss(*batch, reduction="none", weighting="uniform")
    for i in range(9):
        alone = fa.asd_loss(batch.student[i : i + 1], batch.teacher[i : i + 1], batch.targets[i : i + 1], batch.prior)
        torch.testing.assert_close(divergences[i], alone)  # one row has alpha = 1
    torch.testing.assert_close(fa.asd_loss(*batch, reduction="none"), relative * divergences)


def test_terms_of_a_part_of_a_batch():
    batch = make_batch((12, 5), torch.float64)
    whole = fa.asd_loss(*batch, reduction="none")
    normalizer = fa.alpha_normalizer(*list(batch)[1:])
    parts = [
        fa.asd_loss(
            *(x[rows] for x in list(batch)[:3]), batch.prior, reduction="none", alpha_normalizer=normalizer
        )
        for rows in torch.arange(12).split(5)
    ]  # fmt: skip
    torch.testing.assert_close(torch.cat(parts), whole)


def test_compile_and_vmap():
    batch = make_batch((9, 5))
    options = dict(label_smoothing=0.1, class_weights=WEIGHTS.float())

    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(*tensors):
        return fa.asd_objective(*tensors, 3.0, **options), fa.asd_objective(*tensors, 3.0, reduction="none")

    expected = fa.asd_objective(*batch, 3.0, **options), fa.asd_objective(*batch, 3.0, reduction="none")
    torch.testing.assert_close(step(*batch), expected)
    clients = make_batch((3, 7, 5))
    losses = torch.func.vmap(lambda *one: fa.asd_objective(*one, 3.0, **options))(*clients)
    torch.testing.assert_close(losses, fa.asd_objective(*clients, 3.0, client_dim=0, **options))


BAD = [
    (dict(label_smoothing=1.5), ValueError, r"label_smoothing = 1.5; expected a number in \[0, 1\]"),
    (dict(label_smoothing=-0.1), ValueError, "label_smoothing = -0.1"),
    (dict(label_smoothing=float("nan")), ValueError, "label_smoothing = nan"),
    (dict(label_smoothing="0.1"), TypeError, "label_smoothing is a str"),
    (dict(class_weights=[1.0, 2.0]), TypeError, "class_weights is a list"),
    (dict(class_weights=torch.ones(4)), ValueError, r"class_weights has shape \(4,\); expected \(5,\)"),
    (dict(class_weights=torch.ones(5, dtype=torch.long)), ValueError, "class_weights has dtype"),
    (dict(class_weights=torch.ones(5, device="meta")), ValueError, "class_weights is on meta"),
    (dict(reduction="sum"), ValueError, "reduction = 'sum'; expected 'mean' or 'none'"),
    (dict(reduction=None), TypeError, "reduction is a NoneType"),
    (dict(label_smoothing=0.1, ce_weight=float("nan")), ValueError, "ce_weight = nan"),
]


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize(("options", "error", "message"), BAD, ids=str)
def test_bad_options(options, error, message, implementation):
    with pytest.raises(error, match=message):
        fa.asd_objective(*make_batch((9, 5)), 3.0, implementation=implementation, **options)


def test_the_module_keeps_label_proportions_and_class_weights():
    batch = make_batch((9, 5))
    module = fa.ASDLoss(3.0, label_prior=batch.prior, class_weights=WEIGHTS.float(), temperature=3.0)
    expected = fa.asd_objective(*batch, 3.0, class_weights=WEIGHTS.float(), temperature=3.0)
    assert torch.equal(module(batch.student, batch.teacher, batch.targets), expected)
    assert torch.equal(fa.ASDLoss(3.0, batch.prior)(*list(batch)[:3]), fa.asd_objective(*batch, 3.0))
    other = batch.prior.flip(0)
    assert module(batch.student, batch.teacher, batch.targets, other) != expected  # the one of the call goes first
    assert module.state_dict() == {}
    assert {x.device.type for x in module.to("meta").buffers()} == {"meta"}
    assert "temperature=3.0" in repr(module)
    assert "tensor" not in repr(module)
    with pytest.raises(TypeError, match=r"label_prior is a list; expected a torch.Tensor"):
        fa.ASDLoss(3.0, label_prior=[0.5, 0.5])


def test_the_kept_proportions_must_be_those_of_the_cache():
    batch = make_batch((9, 5))
    cache = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior)
    module = fa.ASDLoss(3.0, label_prior=batch.prior)
    assert torch.equal(module(batch.student, cache[:], batch.targets), fa.ASDLoss(3.0)(*batch))
    with pytest.raises(ValueError, match="label_prior differs from the one the teacher cache was built with"):
        fa.ASDLoss(3.0, label_prior=batch.prior.flip(0))(batch.student, cache[:], batch.targets)


def test_without_distillation_no_teacher_is_needed():
    batch = make_batch((9, 5))
    expected = F.cross_entropy(batch.student, batch.targets)
    module = fa.ASDLoss(0.0)
    torch.testing.assert_close(module(batch.student, targets=batch.targets), expected)
    torch.testing.assert_close(module(batch.student, teacher_logits=None, targets=batch.targets), expected)
    with pytest.raises(ValueError, match="teacher_logits = None, but asd_weight = 1"):
        fa.ASDLoss(1.0)(batch.student, targets=batch.targets)
    with pytest.raises(TypeError, match="targets is missing"):
        module(batch.student)

"""alpha_normalizer: a batch in parts (gradient accumulation, DDP) has the loss and gradient of the whole batch."""

import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import fedasd_fast as fa
from tests.conftest import make_batch
from tests.inputs import op_arguments

IMPLEMENTATIONS = ["fused", "reference"]
ROWS, CLASSES = 48, 10


def skewed_client():
    """Most samples have one label, and the rest are worth up to forty times as much."""
    batch = make_batch((ROWS, CLASSES), torch.float64)
    batch.targets[:40] = 0
    batch.prior = fa.label_prior(batch.targets, CLASSES).double()
    return batch


def teacher_of(batch, cached, rows, not_true=False):
    if not cached:
        return batch.teacher[rows], batch.prior
    cache = fa.TeacherCache.from_logits(
        batch.teacher, batch.targets, batch.prior, dtype=torch.float64, not_true=not_true
    )
    return cache[rows], None


def loss_and_grad(batch, cached, rows, **keywords):
    teacher, prior = teacher_of(batch, cached, rows, keywords.get("not_true", False))
    return fa.asd_loss_and_grad(batch.student[rows], teacher, batch.targets[rows], prior, 30.0, **keywords)


def normalizer_of(batch, cached, rows, **keywords):
    teacher, prior = teacher_of(batch, cached, rows)
    return fa.alpha_normalizer(teacher, batch.targets[rows], prior, **keywords)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("options", [{}, dict(divergence="js"), dict(divergence="reverse_kl", not_true=True)], ids=str)
def test_four_times_12_rows_are_48(implementation, cached, options, capability):
    batch, every = skewed_client(), torch.arange(ROWS)
    keywords = dict(implementation=implementation, **options)
    loss, gradient = loss_and_grad(batch, cached, every, **keywords)
    normalizer = normalizer_of(batch, cached, every)
    parts = [
        loss_and_grad(batch, cached, rows, alpha_normalizer=normalizer, **keywords)
        for rows in every.view(12, 4).T.contiguous()  # as a loader without shuffling would not give them
    ]
    order = every.view(12, 4).T.flatten()
    torch.testing.assert_close(torch.stack([part[0] for part in parts]).mean(), loss, rtol=1e-12, atol=1e-12)
    combined = torch.cat([part[1] for part in parts]) / 4
    torch.testing.assert_close(combined, gradient[order], rtol=1e-11, atol=1e-13)
    without = torch.cat([loss_and_grad(batch, cached, rows, **keywords)[1] for rows in order.view(4, 12)]) / 4
    assert (without - gradient[order]).norm() > 0.02 * gradient.norm()  # it is needed


def test_accumulated_gradients_of_a_model_and_a_compiled_loss():
    batch = skewed_client()
    model = nn.Linear(CLASSES, CLASSES).double()
    cache = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior)
    loss_fn = fa.ASDLoss(30.0)
    loss_fn(model(batch.student), cache[:], batch.targets).backward()
    expected = [p.grad.clone() for p in model.parameters()]
    normalizer = fa.alpha_normalizer(cache[:])

    @torch.compile(fullgraph=True, backend="aot_eager")
    def part_loss(logits, rows, targets, normalizer):
        return fa.asd_objective(logits, cache[rows], targets, None, 30.0, alpha_normalizer=normalizer) / 4

    model.zero_grad()
    for rows in torch.randperm(ROWS, generator=torch.Generator().manual_seed(0)).split(12):
        part_loss(model(batch.student[rows]), rows, batch.targets[rows], normalizer).backward()
    for p, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, gradient, rtol=1e-11, atol=1e-13)


def rank(number, port, results):
    """One of two DDP ranks, each with every second row."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=number, world_size=2)
    try:
        batch = skewed_client()
        rows = torch.arange(number, ROWS, 2)
        torch.manual_seed(0)
        model = DistributedDataParallel(nn.Linear(CLASSES, CLASSES).double())
        gradients = []
        for cached in (False, True):
            teacher, prior = teacher_of(batch, cached, rows)
            normalizer = fa.alpha_normalizer(teacher, batch.targets[rows], prior, group=dist.group.WORLD)
            model.zero_grad()
            logits = model(batch.student[rows])
            fa.asd_objective(logits, teacher, batch.targets[rows], prior, 30.0, alpha_normalizer=normalizer).backward()
            gradients.append(model.module.weight.grad.clone())
        results[number] = gradients
    finally:
        dist.destroy_process_group()


def test_two_ranks_are_one():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with mp.get_context("spawn").Manager() as manager:
        results = manager.dict()
        mp.spawn(rank, (port, results), nprocs=2)
        gradients = [gradient for number in range(2) for gradient in results[number]]
    batch = skewed_client()
    torch.manual_seed(0)
    model = nn.Linear(CLASSES, CLASSES).double()
    fa.asd_objective(model(batch.student), *list(batch)[1:], 30.0).backward()
    assert len(gradients) == 4
    for gradient in gradients:
        torch.testing.assert_close(gradient, model.weight.grad, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_value_of_each_client(implementation, dtype):
    """alpha_i = weight / (normaliser x valid rows), one normaliser for each client or one for all."""
    batch = make_batch((3, 8, CLASSES), dtype, ignored=0.3)
    own = fa.alpha_normalizer(batch.teacher, batch.targets, batch.prior, client_dim=0)
    assert own.shape == (3,)
    keywords = dict(implementation=implementation, client_dim=0)
    expected = fa.asd_loss(*batch, **keywords)
    tolerance = dict(rtol=1e-12, atol=1e-12) if dtype == torch.float64 else dict(rtol=2e-6, atol=1e-6)
    torch.testing.assert_close(fa.asd_loss(*batch, alpha_normalizer=own, **keywords), expected, **tolerance)
    torch.testing.assert_close(fa.asd_loss(*batch, alpha_normalizer=4 * own, **keywords), expected / 4, **tolerance)
    one = fa.asd_loss(*batch, alpha_normalizer=2.5, **keywords).double()
    torch.testing.assert_close(one, expected.double() * own / 2.5, **tolerance)


def test_gradcheck_and_opcheck():
    batch = make_batch((5, 4), torch.float64, ignored=0.2, scale=1.0)
    for implementation in IMPLEMENTATIONS:
        torch.autograd.gradcheck(
            lambda z, way=implementation: fa.asd_objective(
                z, *list(batch)[1:], 3.0, alpha_normalizer=1.7, implementation=way
            ),
            batch.student.clone().requires_grad_(),
        )
    for shape in ((4, 7), (2, 4, 7)):
        for cached in (False, True):
            arguments = list(op_arguments(make_batch(shape, ignored=0.1), True, cached))
            arguments[8] = torch.full(shape[:-2], 1.5, dtype=torch.float64)
            torch.library.opcheck(torch.ops.fedasd.asd_objective.default, tuple(arguments))


def test_vmap():
    batch = make_batch((3, 4, CLASSES))
    own = fa.alpha_normalizer(batch.teacher, batch.targets, batch.prior, client_dim=0) * 2
    expected = fa.asd_loss(*batch, alpha_normalizer=own, client_dim=0)

    def one(*arguments):
        *tensors, normalizer = arguments
        return fa.asd_loss(*tensors, alpha_normalizer=normalizer)

    torch.testing.assert_close(torch.func.vmap(one)(*batch, own), expected)
    losses = torch.func.vmap(lambda *tensors: fa.asd_loss(*tensors, alpha_normalizer=2.0))(*batch)
    torch.testing.assert_close(losses, fa.asd_loss(*batch, alpha_normalizer=2.0, client_dim=0))


def test_a_huge_range_of_weights_does_not_overflow(capability):
    """Weights of 1e-6 to 1e24 beside a normaliser far from them."""
    batch = make_batch((6, 5), torch.float64)
    batch.prior = torch.tensor([1e-6, 1e-12, 0.3, 0.3, 0.4], dtype=torch.float64)
    for normalizer in (1e-200, 1e-10, 1e30, 1e200):
        keywords = dict(prior_power=2.0, alpha_normalizer=normalizer)
        fused, plain = (fa.asd_loss(*batch, implementation=way, **keywords) for way in IMPLEMENTATIONS)
        assert plain > 0
        torch.testing.assert_close(fused, plain, rtol=1e-10, atol=0)


def test_padding_and_ignored_rows_do_not_count():
    batch = make_batch((6, 5), torch.float64)
    cache = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior)
    expected = cache.log_weight[:4].exp().mean()
    torch.testing.assert_close(fa.alpha_normalizer(cache[:4]), expected)
    rows, targets = torch.tensor([0, 1, 2, 3, -7]), batch.targets[:5].clone()
    targets[4] = -100
    torch.testing.assert_close(fa.alpha_normalizer(cache[rows], targets), expected)
    raw = fa.alpha_normalizer(batch.teacher[:5], targets, batch.prior)
    torch.testing.assert_close(raw, expected)
    batch.targets[4:] = -100
    ignoring = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior)
    torch.testing.assert_close(fa.alpha_normalizer(ignoring[:]), expected)
    nothing = torch.full((4,), -100)
    assert fa.alpha_normalizer(batch.teacher[:4], nothing, batch.prior) == 1
    loss, gradient = fa.asd_loss_and_grad(
        batch.student[:4], batch.teacher[:4], nothing, batch.prior, 3.0, alpha_normalizer=1.0
    )
    assert loss == 0
    assert not gradient.any()


def test_options_follow_the_cache():
    batch = make_batch((6, 5), torch.float64)
    options = dict(entropy_temperature=2.0, entropy_power=0.5, prior_power=1.5)
    cache = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior, **options)
    raw = fa.alpha_normalizer(batch.teacher, batch.targets, batch.prior, **options)
    torch.testing.assert_close(fa.alpha_normalizer(cache[:]), raw)
    torch.testing.assert_close(fa.alpha_normalizer(cache[:], **options), raw)
    with pytest.raises(ValueError, match=r"prior_power = 1.0, but the teacher cache was built with prior_power = 1.5"):
        fa.alpha_normalizer(cache[:], prior_power=1.0)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (0.0, ValueError, "alpha_normalizer = 0.*positive finite"),
        (float("nan"), ValueError, "alpha_normalizer = nan"),
        (float("inf"), ValueError, "alpha_normalizer = inf"),
        (-1, ValueError, "alpha_normalizer = -1"),
        ("2", TypeError, "alpha_normalizer is a str; expected a number"),
        (torch.ones(2), ValueError, "alpha_normalizer has shape"),
        (torch.ones((), dtype=torch.long), ValueError, "alpha_normalizer has dtype"),
        (torch.ones((), device="meta"), ValueError, "alpha_normalizer is on meta"),
        (torch.ones((), requires_grad=True), ValueError, "alpha_normalizer requires grad"),
    ],
    ids=str,
)
def test_bad_normalizers(value, error, message, implementation):
    with pytest.raises(error, match=message):
        fa.asd_loss(*make_batch((4, 6)), alpha_normalizer=value, implementation=implementation)


def test_bad_calls_name_the_argument():
    batch = make_batch((4, 6))
    cache = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior)
    with pytest.raises(ValueError, match="alpha_normalizer is given, but the weights of weighting='uniform' need none"):
        fa.asd_loss(*batch, alpha_normalizer=1.0, weighting="uniform")
    with pytest.raises(TypeError, match=r"teacher_logits is a TeacherCache.*cache\[rows\]"):
        fa.alpha_normalizer(cache)
    with pytest.raises(ValueError, match="targets or label_prior is None"):
        fa.alpha_normalizer(batch.teacher, batch.targets)
    with pytest.raises(ValueError, match="teacher_logits = None"):
        fa.alpha_normalizer(None)
    with pytest.raises(ValueError, match="rows: 9 is outside"):
        fa.alpha_normalizer(cache[[9]])
    with pytest.raises(ValueError, match="client_dim=0"):
        fa.alpha_normalizer(*list(make_batch((2, 4, 6)))[1:])

"""The CUDA kernels inside PyTorch: autograd, opcheck, torch.compile, vmap, autocast."""

import pytest
import torch
from torch.autograd import gradcheck

import fedasd_fast as fa
from tests.conftest import Batch, make_batch, reference_loss_and_grad
from tests.gpu.inputs import TEACHERS, teacher_of
from tests.inputs import leaf, op_arguments


@pytest.mark.parametrize("divergence", ["kl", "reverse_kl", "js"])
@pytest.mark.parametrize("shape", [(4, 5), (2, 3, 4)], ids=str)
def test_gradcheck(divergence, shape, device):
    batch = make_batch(shape, torch.float64, ignored=0.2, scale=1.0).on(device)

    def function(z):
        return fa.asd_objective(z, *list(batch)[1:], 3.0, divergence=divergence, client_dim=batch.client_dim)

    assert gradcheck(function, batch.student.requires_grad_())


@pytest.mark.parametrize("kind", TEACHERS)
@pytest.mark.parametrize("shape", [(6, 20), (300, 1000), (3, 4, 20)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("factor", [1.0, 2.5, -0.5, 0.0])
def test_upstream_gradient(kind, shape, dtype, factor, device):
    student, batch = leaf(make_batch(shape, dtype).on(device))
    teacher, prior = teacher_of(batch, kind)
    loss = fa.asd_objective(student, teacher, batch.targets, prior, 3.0, client_dim=batch.client_dim)
    (gradient,) = torch.autograd.grad(loss, student, torch.full_like(loss, factor))
    expected = fa.asd_loss_and_grad(student, teacher, batch.targets, prior, 3.0, client_dim=batch.client_dim)
    assert torch.equal(loss, expected[0])
    assert gradient.dtype == dtype
    torch.testing.assert_close(gradient, (expected[1] * factor).to(dtype))


def test_upstream_gradient_differs_by_client(device):
    student, batch = leaf(make_batch((3, 4, 20)).on(device))
    weights = torch.tensor([1.0, 0.0, -2.0], device=device)
    (fa.asd_objective(*batch, 3.0, client_dim=0) * weights).sum().backward()
    expected = fa.asd_loss_and_grad(*batch, 3.0, client_dim=0)[1] * weights[:, None, None]
    torch.testing.assert_close(student.grad, expected)


def test_retained_graph_can_run_again(device):
    student, batch = leaf(make_batch((6, 20)).on(device))
    loss = fa.asd_objective(*batch, 3.0)
    expected = fa.asd_loss_and_grad(*batch, 3.0)[1]
    for k in (1, 2, 3):
        loss.backward(retain_graph=True)
        torch.testing.assert_close(student.grad, k * expected)
    student.grad.zero_()  # writing to .grad must not reach into the graph
    (2 * loss).backward()
    torch.testing.assert_close(student.grad, 2 * expected)


@pytest.mark.parametrize("name", ["asd_objective", "asd_loss_and_grad"])
@pytest.mark.parametrize("shape", [(4, 7), (2, 4, 7)], ids=str)
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("cached", [False, True])
def test_opcheck(name, shape, requires_grad, cached, device):
    arguments = op_arguments(make_batch(shape, ignored=0.1).on(device), requires_grad, cached)
    torch.library.opcheck(getattr(torch.ops.fedasd, name).default, arguments)


def test_opcheck_of_the_cache(device):
    batch = make_batch((4, 7)).on(device)
    arguments = (batch.teacher, batch.targets, batch.prior, 2.0, 1.0, 1.0, 1.0, False, -100, torch.float16, False)
    torch.library.opcheck(torch.ops.fedasd.teacher_cache.default, arguments)


@pytest.mark.parametrize("kind", TEACHERS)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_without_graph_break(kind, dynamic, backend, device):
    if backend == "inductor":
        pytest.importorskip("triton", reason="inductor needs triton on a GPU")
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, backend=backend, dynamic=dynamic)
    def step(student, teacher, targets, prior):
        return 2 * fa.asd_objective(student * 1.5, teacher, targets, prior, 3.0)

    for rows in (6, 300):
        student, batch = leaf(make_batch((rows, 20)).on(device))
        teacher, prior = teacher_of(batch, kind)
        step(student, teacher, batch.targets, prior).backward()
        expected = reference_loss_and_grad(Batch(batch.student * 1.5, *list(batch)[1:]), 3.0)[1] * 3.0
        torch.testing.assert_close(student.grad, expected, rtol=1e-4, atol=1e-5)


def test_vmap_and_grad(device):
    batch = make_batch((3, 4, 20)).on(device)
    losses = torch.func.vmap(lambda *a: fa.asd_objective(*a, 3.0))(*batch)
    expected = fa.asd_loss_and_grad(*batch, 3.0, client_dim=0)
    assert torch.equal(losses, expected[0])
    gradients = torch.func.vmap(torch.func.grad(lambda *a: fa.asd_objective(*a, 3.0)))(*batch)
    torch.testing.assert_close(gradients, expected[1])
    total = torch.func.grad(lambda z: torch.func.vmap(lambda *a: fa.asd_objective(*a, 3.0))(z, *list(batch)[1:]).sum())
    torch.testing.assert_close(total(batch.student), expected[1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast(dtype, device):
    batch = make_batch((6, 20)).on(device)
    weight = torch.randn(20, 20, device=device, requires_grad=True)
    with torch.autocast(device.type, dtype):
        logits = batch.student @ weight
        assert logits.dtype == dtype
        loss = fa.asd_objective(logits, *list(batch)[1:], 3.0)
    assert loss.dtype == torch.float32
    loss.backward()
    expected = fa.asd_objective(logits.detach(), *list(batch)[1:], 3.0, implementation="reference")
    torch.testing.assert_close(loss.detach(), expected, rtol=1e-5, atol=1e-5)
    assert weight.grad.isfinite().all()


def test_module_takes_the_cache_a_model_built(device):
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 12).to(device)
    inputs, targets = torch.randn(90, 8, device=device), torch.randint(12, (90,), device=device)
    prior = fa.label_prior(targets, 12)
    cache = fa.TeacherCache.build(model, inputs, targets, prior, batch_size=40)
    student = torch.randn(90, 12, device=device)
    with torch.no_grad():
        expected = fa.reference.asd_objective(student, model(inputs), targets, prior, 3.0)
    torch.testing.assert_close(fa.ASDLoss(3.0)(student, cache[:], targets), expected, rtol=1e-5, atol=1e-5)

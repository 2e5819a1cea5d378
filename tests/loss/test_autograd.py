"""The fused op inside PyTorch: autograd, torch.func, torch.compile, opcheck, autocast."""

import pytest
import torch
from torch.autograd import gradcheck
from torch.utils.checkpoint import checkpoint

import fedasd_fast as fa
from tests.conftest import Batch, client_dim, make_batch, reference_loss_and_grad
from tests.inputs import leaf, op_arguments


def fused(batch, asd_weight=3.0, **keywords):
    student = next(iter(batch))
    return fa.asd_objective(*batch, asd_weight, implementation="fused", client_dim=client_dim(student), **keywords)


@pytest.mark.parametrize("divergence", ["kl", "reverse_kl", "js"])
@pytest.mark.parametrize("not_true", [False, True])
@pytest.mark.parametrize("shape", [(4, 5), (3, 40), (2, 3, 4)], ids=str)
def test_gradcheck(divergence, not_true, shape):
    batch = make_batch(shape, torch.float64, ignored=0.2, scale=1.0)

    def function(z):
        return fused(Batch(z, *list(batch)[1:]), divergence=divergence, not_true=not_true)

    assert gradcheck(function, batch.student.requires_grad_())


@pytest.mark.parametrize("shape", [(6, 20), (3, 4, 20)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("factor", [1.0, 2.5, -0.5, 0.0])
def test_upstream_gradient(shape, dtype, factor):
    batch = make_batch(shape, dtype)
    student, batch = leaf(batch)
    loss = fused(batch)
    upstream = torch.full_like(loss, factor)
    (gradient,) = torch.autograd.grad(loss, student, upstream)
    expected = fa.asd_loss_and_grad(*batch, 3.0, client_dim=batch.client_dim)[1] * factor
    assert gradient.dtype == dtype
    torch.testing.assert_close(gradient, expected.to(dtype))


def test_upstream_gradient_differs_by_client():
    student, batch = leaf(make_batch((3, 4, 20)))
    weights = torch.tensor([1.0, 0.0, -2.0])
    (fused(batch) * weights).sum().backward()
    expected = fa.asd_loss_and_grad(*batch, 3.0, client_dim=0)[1] * weights[:, None, None]
    torch.testing.assert_close(student.grad, expected)


def test_two_losses_on_the_same_logits():
    student, batch = leaf(make_batch((6, 20)))
    (fused(batch) + fused(batch, divergence="js") + student.square().sum()).backward()
    expected = sum(fa.asd_loss_and_grad(*batch, 3.0, divergence=d)[1] for d in ("kl", "js")) + 2 * student.detach()
    torch.testing.assert_close(student.grad, expected)


def test_retained_graph_can_run_again():
    student, batch = leaf(make_batch((6, 20)))
    loss = fused(batch)
    expected = fa.asd_loss_and_grad(*batch, 3.0)[1]
    for k in (1, 2, 3):
        loss.backward(retain_graph=True)
        torch.testing.assert_close(student.grad, k * expected)
    student.grad.zero_()  # writing to .grad must not reach into the graph
    (2 * loss).backward()
    torch.testing.assert_close(student.grad, 2 * expected)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_gradient_does_not_alias_anything():
    student, batch = leaf(make_batch((6, 20)))
    loss = fused(batch)
    loss.backward(retain_graph=True)
    student.grad.fill_(7.0)
    torch.autograd.grad(loss, student, retain_graph=True)[0].fill_(7.0)
    (gradient,) = torch.autograd.grad(loss, student)
    torch.testing.assert_close(gradient, fa.asd_loss_and_grad(*batch, 3.0)[1])


def test_through_a_model_and_checkpointing():
    batch = make_batch((6, 20))
    weight = torch.randn(20, 20, requires_grad=True)

    def objective(weight):
        return fused(Batch(batch.student @ weight, batch.teacher, batch.targets, batch.prior))

    (plain,) = torch.autograd.grad(objective(weight), weight)
    (rerun,) = torch.autograd.grad(checkpoint(objective, weight, use_reentrant=False), weight)
    reference = fa.asd_objective(batch.student @ weight, *list(batch)[1:], 3.0, implementation="reference")
    torch.testing.assert_close(plain, torch.autograd.grad(reference, weight)[0], rtol=1e-4, atol=1e-5)
    assert torch.equal(plain, rerun)


def test_saved_tensor_hooks_are_honoured():
    student, batch = leaf(make_batch((6, 20)))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.double(), lambda t: t.float()):
        loss = fused(batch)
    loss.backward()
    torch.testing.assert_close(student.grad, fa.asd_loss_and_grad(*batch, 3.0)[1])


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(mode):
    _, batch = leaf(make_batch((6, 20)))
    with mode():
        loss = fused(batch)
    assert not loss.requires_grad
    assert torch.equal(loss, fused(batch).detach())
    plain, gradient = fa.asd_loss_and_grad(*batch, 3.0)
    assert not plain.requires_grad
    assert not gradient.requires_grad


def test_double_backward_names_the_reference():
    student, batch = leaf(make_batch((6, 20)))
    (gradient,) = torch.autograd.grad(fused(batch), student, create_graph=True)
    torch.testing.assert_close(gradient.detach(), fa.asd_loss_and_grad(*batch, 3.0)[1])
    with pytest.raises(RuntimeError, match="reference"):
        gradient.square().sum().backward()


def test_forward_mode_names_the_reference():
    _, batch = leaf(make_batch((6, 20)))
    with pytest.raises(NotImplementedError, match="reference"):
        torch.func.jvp(
            lambda z: fused(Batch(z, batch.teacher, batch.targets, batch.prior)),
            (batch.student.detach(),),
            (batch.teacher,),
        )


@pytest.mark.parametrize("name", ["asd_objective", "asd_loss_and_grad"])
@pytest.mark.parametrize("shape", [(4, 7), (2, 4, 7)], ids=str)
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("cached", [False, True])
def test_opcheck(name, shape, requires_grad, cached):
    torch.library.opcheck(
        getattr(torch.ops.fedasd, name).default, op_arguments(make_batch(shape, ignored=0.1), requires_grad, cached)
    )


def test_opcheck_of_the_cache():
    batch = make_batch((4, 7))
    arguments = (batch.teacher, batch.targets, batch.prior, 2.0, 1.0, 1.0, 1.0, False, -100, torch.float16, False)
    torch.library.opcheck(torch.ops.fedasd.teacher_cache.default, arguments)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_without_graph_break(cached, dynamic):
    @torch.compile(fullgraph=True, backend="aot_eager", dynamic=dynamic)
    def step(student, teacher, targets, prior):
        return 2 * fa.asd_objective(student * 1.5, teacher, targets, prior, 3.0)

    for rows in (6, 9):
        batch = make_batch((rows, 20))
        student, batch = leaf(batch)
        teacher, prior = batch.teacher, batch.prior
        if cached:
            teacher, prior = fa.TeacherCache.from_logits(teacher, batch.targets, prior)[torch.arange(rows)], None
        step(student, teacher, batch.targets, prior).backward()
        expected = reference_loss_and_grad(Batch(batch.student * 1.5, *list(batch)[1:]), 3.0)[1] * 3.0
        torch.testing.assert_close(student.grad, expected, rtol=1e-4, atol=1e-5)


def test_compile_with_inductor():
    """End to end through the default backend, loss_and_grad included."""

    @torch.compile(fullgraph=True)
    def step(student, teacher, targets, prior):
        loss, gradient = fa.asd_loss_and_grad(student + 1, teacher, targets, prior, 3.0)
        return loss * 2, gradient.sin()

    batch = make_batch((6, 20))
    loss, gradient = step(*batch)
    expected = fa.asd_loss_and_grad(batch.student + 1, *list(batch)[1:], 3.0)
    torch.testing.assert_close(loss, expected[0] * 2)
    torch.testing.assert_close(gradient, expected[1].sin())


@pytest.mark.parametrize("in_dims", [(0, 0, 0, 0), (1, 0, 0, None), (2, None, 0, 0)])
def test_vmap_maps_clients_onto_the_client_dimension(in_dims):
    batch = make_batch((3, 4, 20))
    arguments = []
    for tensor, dim in zip(batch, in_dims, strict=True):
        arguments.append(tensor[0] if dim is None else tensor.movedim(0, dim))
    losses = torch.func.vmap(lambda *a: fa.asd_objective(*a, 3.0), in_dims)(*arguments)
    spread = Batch(
        *(a.expand(3, *a.shape) if d is None else a.movedim(d, 0) for a, d in zip(arguments, in_dims, strict=True))
    )
    assert torch.equal(losses, fused(spread))


def test_vmap_of_grad_is_the_gradient_of_each_client():
    batch = make_batch((3, 4, 20))
    gradients = torch.func.vmap(torch.func.grad(lambda *a: fa.asd_objective(*a, 3.0)))(*batch)
    torch.testing.assert_close(gradients, fa.asd_loss_and_grad(*batch, 3.0, client_dim=0)[1])
    losses, gradients = torch.func.vmap(lambda *a: fa.asd_loss_and_grad(*a, 3.0))(*batch)
    assert torch.equal(losses, fused(batch))


def test_vmap_over_a_client_dimension_and_grad_of_vmap():
    batch = make_batch((2, 3, 4, 20))
    losses = torch.func.vmap(lambda *a: fa.asd_objective(*a, 3.0, client_dim=0))(*batch)
    assert losses.shape == (2, 3)
    assert torch.equal(losses[1], fused(Batch(*(x[1] for x in batch))))
    one = Batch(*(x[0] for x in batch))
    total = torch.func.grad(lambda z: torch.func.vmap(lambda *a: fa.asd_objective(*a, 3.0))(z, *list(one)[1:]).sum())
    torch.testing.assert_close(total(one.student), fa.asd_loss_and_grad(*one, 3.0, client_dim=0)[1])


def test_vmap_over_rows_of_one_cache():
    batch = make_batch((12, 20))
    cache = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior)
    rows = torch.arange(12).view(3, 4)
    losses = torch.func.vmap(lambda z, r, y: fa.asd_objective(z, cache[r], y, None, 3.0))(
        batch.student.view(3, 4, 20), rows, batch.targets.view(3, 4)
    )
    for k in range(3):
        assert torch.equal(
            losses[k], fa.asd_objective(batch.student[rows[k]], cache[rows[k]], batch.targets[rows[k]], None, 3.0)
        )


def test_autocast():
    batch = make_batch((6, 20))
    weight = torch.randn(20, 20, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        logits = batch.student @ weight
        assert logits.dtype == torch.bfloat16
        loss = fused(Batch(logits, batch.teacher, batch.targets, batch.prior))
    assert loss.dtype == torch.float32
    loss.backward()
    expected = fa.asd_objective(logits.detach(), *list(batch)[1:], 3.0, implementation="reference")
    torch.testing.assert_close(loss.detach(), expected)
    assert weight.grad.isfinite().all()


def test_module_and_functions_agree():
    _, batch = leaf(make_batch((6, 20)))
    module = fa.ASDLoss(asd_weight=3.0, temperature=3.0, divergence="js")
    assert torch.equal(module(*batch), fused(batch, temperature=3.0, divergence="js"))
    assert "temperature=3.0" in repr(module)
    ce = torch.nn.functional.cross_entropy(batch.student, batch.targets)
    torch.testing.assert_close(fused(batch), ce + 3 * fa.asd_loss(*batch))

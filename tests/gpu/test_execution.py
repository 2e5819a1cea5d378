"""How the work is queued: graphs, streams, devices, launches, memory; and never a wait of the host."""

from contextlib import contextmanager

import pytest
import torch

import fedasd_fast as fa
from benchmarks.cuda import Graph, launches
from tests.conftest import make_batch, reference_loss_and_grad
from tests.gpu.inputs import SHAPES, TEACHERS, fused, teacher_of

LONG = 50_000_000  # clock cycles, some 30 ms


def step(batch, kind):
    """A function without arguments that reads the batch's memory as it is when it runs, and that memory."""
    teacher, prior = teacher_of(batch, kind)
    inputs = [batch.student, batch.targets]
    if kind == "raw":
        inputs += [teacher, prior]
    else:
        cache = teacher.cache
        inputs += [teacher.rows, cache.rows, cache.constant, cache.log_weight, cache.targets]
    return (lambda: fused((batch.student, teacher, batch.targets, prior), 3.0)), inputs


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", TEACHERS)
def test_graph_replays_with_new_inputs(shape, kind, device):
    call, inputs = step(make_batch(shape, ignored=0.1).on(device), kind)
    graph = Graph(call)
    for seed in range(1, 4):
        other, new = step(make_batch(shape, ignored=0.1, seed=seed).on(device), kind)
        for old, value in zip(inputs, new, strict=True):
            old.copy_(value)
        expected = other()
        for _ in range(100):
            for output in graph.outputs:
                output.fill_(-1)
            graph()
        assert all(map(torch.equal, graph.outputs, expected))


@pytest.mark.parametrize("shape", [(50, 10), (300, 1000)], ids=str)
@pytest.mark.parametrize("kind", TEACHERS)
def test_graph_of_forward_and_backward(shape, kind, device):
    batch = make_batch(shape).on(device)
    teacher, prior = teacher_of(batch, kind)
    student = batch.student.clone().requires_grad_()

    def call():
        loss = fa.asd_objective(student, teacher, batch.targets, prior, 3.0)
        return loss.detach(), torch.autograd.grad(2 * loss, student)[0]

    graph = Graph(call)
    with torch.no_grad():
        student.copy_(make_batch(shape, seed=1).student)
    outputs = graph()
    loss, gradient = fused((student.detach(), teacher, batch.targets, prior), 3.0)
    assert torch.equal(outputs[0], loss)
    torch.testing.assert_close(outputs[1], 2 * gradient)


def test_graph_of_the_cache(device):
    batch = make_batch((300, 100)).on(device)

    def call():
        cache = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior)
        return cache.rows, cache.constant, cache.log_weight

    graph = Graph(call)
    batch.teacher.copy_(make_batch((300, 100), seed=1).teacher)
    assert all(map(torch.equal, graph(), call()))


@contextmanager
def no_synchronisation():
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", TEACHERS)
def test_host_never_waits(shape, kind, device):
    batch = make_batch(shape).on(device)
    teacher, prior = teacher_of(batch, kind)
    student = batch.student.clone().requires_grad_()

    clients = dict(client_dim=batch.client_dim)

    def call():
        fa.asd_objective(student, teacher, batch.targets, prior, 3.0, **clients).sum().backward()
        (2 * fa.asd_objective(student, teacher, batch.targets, prior, 3.0, **clients)).sum().backward()
        fused((student, teacher, batch.targets, prior), 3.0)
        fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior, **clients)

    call()  # the first time may set things up
    with no_synchronisation():
        call()


@pytest.mark.parametrize("shape", [(50, 10), (300, 1000), (64, 4099)], ids=str)
@pytest.mark.parametrize("kind", TEACHERS)
def test_work_is_queued_on_the_current_stream(shape, kind, device):
    call, inputs = step(make_batch(shape).on(device), kind)
    other, new = step(make_batch(shape, seed=1).on(device), kind)
    expected = other()
    call()
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(LONG)  # on any other stream the kernel would read the old inputs
        for old, value in zip(inputs, new, strict=True):
            old.copy_(value)
        outputs = call()
        copies = [output.clone() for output in outputs]
    torch.cuda.current_stream().wait_stream(side)
    assert all(map(torch.equal, copies, expected))


@pytest.mark.parametrize("kind", TEACHERS)
def test_two_streams_at_once(kind, device):
    """Blocks of several launches share the GPU; those that wait for each other must all be running."""
    calls = [step(make_batch((300, 1000), seed=seed).on(device), kind)[0] for seed in range(2)]
    expected = [call() for call in calls]
    streams = [torch.cuda.Stream() for _ in calls]
    torch.cuda.synchronize()
    outputs = []
    for _ in range(50):
        for call, stream in zip(calls, streams, strict=True):
            with torch.cuda.stream(stream):
                outputs.append(call())
    torch.cuda.synchronize()
    for place, output in enumerate(outputs):
        assert all(map(torch.equal, output, expected[place % 2])), place


@pytest.mark.parametrize("kind", TEACHERS)
def test_inputs_on_another_device_than_the_current_one(kind):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    with torch.cuda.device(0):
        batch = make_batch((300, 1000)).on("cuda:1")
        call, _ = step(batch, kind)
        loss, gradient = call()
        assert torch.cuda.current_device() == 0
    assert loss.device == gradient.device == batch.student.device
    truth = reference_loss_and_grad(batch, 3.0, torch.float64)
    torch.testing.assert_close(loss.double(), truth[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient.double(), truth[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", TEACHERS)
def test_loss_and_gradient_are_one_launch(shape, kind, device):
    call, _ = step(make_batch(shape).on(device), kind)
    work = launches(call)
    assert len(work) == 1, work  # neither copies nor fills beside it
    assert work[0][0] == "kernel"
    assert "objective_kernel" in work[0][1]


def test_the_cache_is_one_launch(device):
    batch = make_batch((300, 100)).on(device)
    work = launches(lambda: fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior))
    assert len(work) == 1, work
    assert "build_cache_kernel" in work[0][1]


@pytest.mark.parametrize("kind", TEACHERS)
def test_memory_is_the_gradient_and_a_few_numbers_a_row(kind, device):
    call, _ = step(make_batch((1024, 1000)).on(device), kind)

    def requested(which):  # without the allocator's rounding
        return torch.cuda.memory_stats(device)[f"requested_bytes.all.{which}"]

    call()
    torch.cuda.reset_peak_memory_stats(device)
    before = requested("current")
    loss, gradient = call()
    workspace = 12 * 1024 if kind == "raw" else 0
    assert gradient.nbytes <= requested("peak") - before <= 1.05 * (gradient.nbytes + loss.nbytes + workspace)

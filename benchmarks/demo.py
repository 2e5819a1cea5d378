"""A short side-by-side of the reference and the fused ASD loss on one federated client: `make demo`."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import nn

import fedasd_fast as fa

CLASSES, SAMPLES, BATCH, EPOCHS, WEIGHT = 100, 500, 50, 5, 30.0


def timed(call: Callable[[], object], seconds: float = 1.0) -> float:
    """Best time of one call."""
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    torch.manual_seed(0)
    info = fa.build_info()
    kernels = info["cpu_capability"] or info["reason"]
    print(f"fedasd_fast {fa.__version__}, torch {info['torch_running']}, CPU kernels: {kernels}")

    # One client with few classes, a global model, and a local model that has drifted from it.
    targets = torch.multinomial(torch.rand(CLASSES) ** 8, SAMPLES, replacement=True)
    inputs = torch.randn(SAMPLES, 64)
    global_model, local_model = nn.Linear(64, CLASSES), nn.Linear(64, CLASSES)
    prior = fa.label_prior(targets, CLASSES)
    cache = fa.TeacherCache.build(global_model, inputs, targets, prior)
    print(f"one client: {SAMPLES} samples of {(prior > 0).sum()} out of {CLASSES} classes; {cache}")

    rows = torch.arange(BATCH)
    x, y = inputs[rows], targets[rows]
    with torch.no_grad():
        teacher = global_model(x)
    student = local_model(x).detach().requires_grad_()

    def through_autograd(implementation: str) -> tuple[torch.Tensor, torch.Tensor]:
        loss = fa.asd_objective(student, teacher, y, prior, WEIGHT, implementation=implementation)
        return loss.detach(), torch.autograd.grad(loss, student)[0]

    ways: dict[str, Callable[[], tuple[torch.Tensor, torch.Tensor]]] = {
        "reference, autograd": lambda: through_autograd("reference"),
        "fused, autograd": lambda: through_autograd("auto"),
        "fused, loss and gradient": lambda: fa.asd_loss_and_grad(student, teacher, y, prior, WEIGHT),
        "fused, cached teacher": lambda: fa.asd_loss_and_grad(student, cache[rows], y, None, WEIGHT),
    }
    truth = ways["reference, autograd"]()[1]
    print(f"\nobjective and gradient of a batch of {BATCH} x {CLASSES}, best of one second each:")
    print(f"{'':26s}{'time':>12s}{'speed-up':>12s}{'loss':>12s}{'gradient error':>18s}")
    slowest = 0.0
    for name, call in ways.items():
        loss, gradient = call()
        seconds = timed(call)
        slowest = slowest or seconds
        error = (gradient - truth).abs().max().item()
        print(f"{name:26s}{seconds * 1e6:9.1f} us{slowest / seconds:11.1f}x{loss.item():12.5f}{error:18.1e}")

    print(f"\nlocal training of that client, {EPOCHS} epochs, with the cached teacher:")
    optimizer = torch.optim.SGD(local_model.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        total = torch.zeros(())
        for rows in torch.randperm(SAMPLES).split(BATCH):
            logits = local_model(inputs[rows])
            loss, gradient = fa.asd_loss_and_grad(logits, cache[rows], targets[rows], None, WEIGHT)
            optimizer.zero_grad()
            logits.backward(gradient)
            optimizer.step()
            total += loss
        print(f"  epoch {epoch + 1}: cross-entropy + {WEIGHT:g} x ASD = {total.item() / (SAMPLES / BATCH):.3f}")


if __name__ == "__main__":
    main()

"""Shared inputs: one place that knows how to make a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import fedasd_fast as fa
from fedasd_fast.algorithms import registry
from fedasd_fast.kernels import loader

CAPABILITIES = ("avx512", "avx2", "generic")


def client_dim(logits: Tensor) -> int | None:
    """What the loss is told of logits [B, C] or [K, B, C]."""
    return 0 if logits.dim() == 3 else None


@dataclass
class Batch:
    student: Tensor
    teacher: Tensor
    targets: Tensor
    prior: Tensor

    def __iter__(self) -> Any:
        return iter((self.student, self.teacher, self.targets, self.prior))

    @property
    def client_dim(self) -> int | None:
        return client_dim(self.student)

    def to(self, dtype: torch.dtype) -> Batch:
        return Batch(self.student.to(dtype), self.teacher.to(dtype), self.targets, self.prior.to(dtype))

    def on(self, device: torch.device | str) -> Batch:
        return Batch(*(tensor.to(device) for tensor in self))


def make_batch(
    shape: tuple[int, ...],
    dtype: torch.dtype = torch.float32,
    *,
    scale: float = 3.0,
    ignored: float = 0.0,
    seed: int = 0,
) -> Batch:
    """Logits of the given shape, labels (some of them ignored) and positive label shares."""
    random = torch.Generator().manual_seed(seed)

    def normal() -> Tensor:
        return (torch.randn(shape, generator=random, dtype=torch.float64) * scale).to(dtype)

    student, teacher = normal(), normal()
    targets = torch.randint(0, shape[-1], shape[:-1], generator=random)
    targets[torch.rand(targets.shape, generator=random) < ignored] = -100
    shares = torch.rand((*shape[:-2], shape[-1]), generator=random, dtype=torch.float64) + 0.01
    shares = shares / shares.sum(-1, keepdim=True)
    return Batch(
        student, teacher, targets, shares.to(torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype)
    )


def reference_loss_and_grad(batch: Batch, asd_weight: float, dtype: torch.dtype | None = None, **keywords: Any) -> Any:
    """Loss and gradient by the reference; with `dtype`, of the same numbers in another precision."""
    batch = batch if dtype is None else batch.to(dtype)
    student = batch.student.detach().clone().requires_grad_()
    loss = fa.reference.asd_objective(
        student, batch.teacher, batch.targets, batch.prior, asd_weight, client_dim=batch.client_dim, **keywords
    )
    (gradient,) = torch.autograd.grad(loss.sum(), student)
    return loss.detach(), gradient


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method that a test registers, or a document that it runs, is gone when the next test begins."""
    monkeypatch.setattr(registry, "_methods", dict(registry._methods))


@pytest.fixture(params=CAPABILITIES)
def capability(request: pytest.FixtureRequest) -> Any:
    """Runs the test on every instruction set this CPU has."""
    before = fa.build_info()["cpu_capability"]
    if not loader.module.select_cpu_capability(request.param):
        pytest.skip(f"this CPU has no {request.param}")
    yield request.param
    loader.module.select_cpu_capability(before)

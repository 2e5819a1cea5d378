"""The shapes and inputs that every loss benchmark uses."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import fedasd_fast as fa

ASD_WEIGHT = 30.0
TEMPERATURE = 2.0

SHAPES = (
    (50, 10),
    (50, 100),
    (50, 200),
    (256, 1000),
    (1024, 1000),
    (512, 32000),
    (8, 151936),
    (50, 10, 10),
    (100, 50, 100),
)
QUICK_SHAPES = ((50, 10), (256, 1000), (50, 10, 10))
# Below about a megabyte of gradient, the pages of code a call touches for the first time drown its buffers.
MEMORY_SHAPES = ((256, 1000), (1024, 1000), (512, 32000), (8, 151936))
QUICK_MEMORY_SHAPES = ((256, 1000),)


def shape_name(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def client_dim(logits: Tensor) -> int | None:
    return 0 if logits.dim() == 3 else None


@dataclass(frozen=True, eq=False)
class Case:
    """One batch ([B, C]) or a stack of client batches ([K, B, C]), with a teacher cache that holds the same rows."""

    student: Tensor  # [.., B, C]
    teacher: Tensor  # [.., B, C]
    targets: Tensor  # [.., B]
    prior: Tensor  # [.., C]
    cache: fa.TeacherCache
    rows: Tensor  # [.., B]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.student.shape)

    def truth(self) -> tuple[Tensor, Tensor]:
        """Loss and gradient of the reference in float64, from the same float32 inputs."""
        student = self.student.double().requires_grad_()
        loss = fa.reference.asd_objective(
            student, self.teacher.double(), self.targets, self.prior.double(), ASD_WEIGHT, temperature=TEMPERATURE,
            client_dim=client_dim(student),
        )  # fmt: skip
        (gradient,) = torch.autograd.grad(loss.sum(), student)
        return loss.detach(), gradient


def make_case(shape: tuple[int, ...], seed: int = 0) -> Case:
    random = torch.Generator().manual_seed(seed)
    *lead, batch, classes = shape
    student = 3 * torch.randn(shape, generator=random)
    teacher = 3 * torch.randn(shape, generator=random)
    targets = torch.randint(classes, (*lead, batch), generator=random)
    prior = torch.randn(*lead, classes, generator=random).softmax(-1)
    # The cache is stored in another order than the batch, so the kernel's gather does real work.
    order = torch.rand(*lead, batch, generator=random).argsort(-1)
    shuffled = teacher.gather(-2, order.unsqueeze(-1).expand(shape))
    cache = fa.TeacherCache.from_logits(
        shuffled, targets.gather(-1, order), prior, temperature=TEMPERATURE, client_dim=client_dim(student)
    )
    return Case(student, teacher, targets, prior, cache, order.argsort(-1))

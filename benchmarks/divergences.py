"""The divergence alone, with equal weights and without cross-entropy: what Liger-Kernel's KL and JSD compute too.

Liger's kernels take log-probabilities, so the softmaxes with temperature stand before them in plain PyTorch; ours take
logits.  Forward and backward through autograd in all of them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

import fedasd_fast as fa

from .cases import TEMPERATURE, Case
from .implementations import Call, through_autograd


def log_softmaxes(z: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    return F.log_softmax(z / TEMPERATURE, -1), F.log_softmax(t / TEMPERATURE, -1)


def eager_kl(z: Tensor, t: Tensor, *_: Tensor) -> Tensor:
    return F.kl_div(*log_softmaxes(z, t), reduction="batchmean", log_target=True)


def eager_js(z: Tensor, t: Tensor, *_: Tensor) -> Tensor:
    log_q, log_s = log_softmaxes(z, t)
    log_m = ((log_q.exp() + log_s.exp()) / 2).log()
    return (F.kl_div(log_m, log_s, reduction="batchmean", log_target=True)
            + F.kl_div(log_m, log_q, reduction="batchmean", log_target=True)) / 2  # fmt: skip


def fused(divergence: str) -> Callable[..., Tensor]:
    def loss(z: Tensor, t: Tensor, y: Tensor, p: Tensor) -> Tensor:
        return fa.asd_loss(
            z, t, y, p, temperature=TEMPERATURE, weighting="uniform", divergence=divergence, implementation="fused"
        )

    return loss


def liger_kl() -> Callable[..., Tensor]:
    from liger_kernel.transformers import LigerKLDIVLoss

    loss = LigerKLDIVLoss(reduction="batchmean", log_target=True)
    return lambda z, t, *_: loss(*log_softmaxes(z, t))


def liger_js() -> Callable[..., Tensor]:
    from liger_kernel.transformers import LigerJSD

    loss = LigerJSD(beta=0.5)
    return lambda z, t, *_: loss(*log_softmaxes(z, t))


OBJECTIVES: dict[str, Callable[[], Callable[..., Tensor]]] = {
    "eager_kl": lambda: eager_kl,
    "liger_kl": liger_kl,
    "fused_kl": lambda: fused("kl"),
    "eager_js": lambda: eager_js,
    "liger_js": liger_js,
    "fused_js": lambda: fused("js"),
}


def prepare(name: str, case: Case) -> Call:
    """Raises ImportError where Liger-Kernel is not installed."""
    return through_autograd(OBJECTIVES[name](), case)


def truth(name: str, case: Case) -> Tensor:
    """The gradient of the same divergence in float64."""
    student = case.student.double().requires_grad_()
    eager = eager_kl if name.endswith("kl") else eager_js
    eager(student, case.teacher.double()).backward()
    assert student.grad is not None
    return student.grad

"""ASDLoss: the objective as an nn.Module."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..kernels.checks import check_tensor
from .cached_teacher import TeacherRows
from .functional import asd_objective


class ASDLoss(nn.Module):
    """cross-entropy + asd_weight * ASD as a module; keywords as `asd_objective`.

        loss = fa.ASDLoss(asd_weight=30.0, label_prior=prior)
        loss(student_logits, teacher_logits, targets).backward()

    `label_prior`, the label proportions of the client, may be kept here or passed with each batch (which goes first);
    neither is needed with cache[rows].  With asd_weight=0 the teacher may be left out, `loss(student_logits,
    targets=targets)`: the cross-entropy alone.
    """

    label_prior: Tensor | None
    class_weights: Tensor | None

    def __init__(self, asd_weight: float, label_prior: Tensor | None = None, **keywords: Any) -> None:
        super().__init__()
        known = set(asd_objective.__kwdefaults__ or ())
        unknown = set(keywords) - known
        if unknown:
            raise ValueError(f"unknown option {sorted(unknown)}; expected some of {sorted(known)}")
        self.asd_weight = asd_weight
        # Buffers follow .to(device).  They are data and settings, not what a checkpoint should restore.
        for name, tensor in (("label_prior", label_prior), ("class_weights", keywords.pop("class_weights", None))):
            if tensor is not None:
                check_tensor(tensor, name)
            self.register_buffer(name, tensor, persistent=False)
        self.keywords = keywords

    def forward(
        self,
        student_logits: Tensor,
        teacher_logits: Tensor | TeacherRows | None = None,
        targets: Tensor | None = None,
        label_prior: Tensor | None = None,
    ) -> Tensor:
        if targets is None:
            raise TypeError("targets is missing; expected labels: call loss(student_logits, teacher_logits, targets)")
        prior = self.label_prior if label_prior is None else label_prior
        return asd_objective(
            student_logits, teacher_logits, targets, prior, self.asd_weight, class_weights=self.class_weights,
            **self.keywords,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return ", ".join(f"{k}={v!r}" for k, v in {"asd_weight": self.asd_weight, **self.keywords}.items())

"""ASDLoss: the objective as an nn.Module."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .cached_teacher import TeacherRows
from .functional import asd_objective


class ASDLoss(nn.Module):
    """cross-entropy + asd_weight * ASD; keywords as asd_objective.

    >>> loss = ASDLoss(asd_weight=30.0, temperature=2.0)
    >>> loss(student_logits, teacher_logits, targets, label_prior).backward()

    With asd_weight=0 the teacher may be None: the cross-entropy alone.
    """

    def __init__(self, asd_weight: float, **keywords: Any) -> None:
        super().__init__()
        known = set(asd_objective.__kwdefaults__ or ())
        unknown = set(keywords) - known
        if unknown:
            raise ValueError(f"unknown option {sorted(unknown)}; expected some of {sorted(known)}")
        self.asd_weight = asd_weight
        self.keywords = keywords

    def forward(
        self,
        student_logits: Tensor,
        teacher: Tensor | TeacherRows | None,
        targets: Tensor,
        label_prior: Tensor | None = None,
    ) -> Tensor:
        return asd_objective(student_logits, teacher, targets, label_prior, self.asd_weight, **self.keywords)

    def extra_repr(self) -> str:
        return ", ".join(f"{k}={v!r}" for k, v in {"asd_weight": self.asd_weight, **self.keywords}.items())

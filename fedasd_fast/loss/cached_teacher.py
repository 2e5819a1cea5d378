"""The tensors of a teacher cache, and the view of them that belongs to one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..kernels.checks import (
    INTEGERS,
    as_bool,
    check_memory,
    check_options,
    check_proportions,
    readable,
    require,
    wrong_type,
)
from .options import ASDOptions, TeacherKey


@dataclass(eq=False, slots=True)  # made in every step: a frozen one takes twice as long to make
class TeacherRows:
    """The rows of a cache that belong to a batch: `cache[rows]`.  Nothing is copied; the kernels gather the rows."""

    cache: CachedTeacher
    rows: Tensor  # [B] or [K, B]

    def check_values(self, targets: Tensor, valid: Tensor) -> None:
        """Refuses rows outside the cache, and labels other than those it was built with."""
        rows, samples = self.rows, len(self.cache)
        if not readable(targets) or not readable(rows):
            return
        outside = valid & ((rows < 0) | (rows >= samples))
        if outside.any():
            raise ValueError(f"rows: {rows[outside][0].item()} is outside the teacher cache's [0, {samples})")
        built = self.cache.targets.gather(-1, rows.long().where(valid, 0))
        other = valid & (built != targets)
        if other.any():
            raise ValueError(
                f"targets = {targets[other][0].item()}, but the teacher cache was built with label "
                f"{built[other][0].item()} for row {rows[other][0].item()}; build the cache from these labels, "
                "or pass the matching rows"
            )


@dataclass(frozen=True, eq=False)
class CachedTeacher:
    """What a step needs of the teacher, for each sample of one client ([N, ..]) or of K clients ([K, N, ..])."""

    rows: Tensor  # [.., N, C] softmax(t / tau), or its logarithm with log_rows
    constant: Tensor  # [.., N] float64: sum_c s log s (0 with log_rows)
    log_weight: Tensor  # [.., N] float64: log of the un-normalised alpha
    targets: Tensor  # [.., N]
    label_prior: Tensor  # [.., C]
    key: TeacherKey  # the options it was built with
    log_rows: bool

    def __getitem__(self, rows: Tensor | slice | Sequence[int]) -> TeacherRows:
        """The view of these rows ([B], or [K, B] with a client dimension) for one batch."""
        if isinstance(rows, slice) and (rows.step is None or (isinstance(rows.step, int) and rows.step > 0)):
            rows = torch.arange(self.rows.shape[-2], device=self.rows.device)[rows].expand(*self.targets.shape[:-1], -1)
        elif not isinstance(rows, Tensor):
            rows = self._as_tensor(rows)
        if rows.dtype not in INTEGERS or rows.dim() != self.targets.dim():
            expected = "[B]" if self.targets.dim() == 1 else "[K, B], for the cache has a dimension of clients"
            raise IndexError(
                f"rows has dtype {rows.dtype} and shape {tuple(rows.shape)}; expected int64 or int32 row numbers "
                f"{expected}; for a mask use mask.nonzero().squeeze(-1)"
            )
        return TeacherRows(self, rows)

    def _as_tensor(self, rows: object) -> Tensor:
        try:
            return torch.as_tensor(rows, device=self.rows.device)
        except Exception as error:
            raise wrong_type(
                rows, "rows", "row numbers: integers in a tensor or a list, or a slice that goes forward, such as "
                "the rows that a DataLoader of with_rows(dataset) gives"
            ) from error  # fmt: skip

    def __len__(self) -> int:
        return self.rows.shape[-2]

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in (self.rows, self.constant, self.log_weight, self.targets, self.label_prior))

    def __repr__(self) -> str:
        shape, name = tuple(self.rows.shape), type(self).__name__
        return f"{name}(shape={shape}, dtype={self.rows.dtype}, {self.nbytes:,} bytes)"

    def check_memory(self) -> None:
        """What the kernels check by themselves."""
        for tensor in (self.rows, self.constant, self.log_weight, self.targets):
            check_memory(tensor, "the teacher cache")

    def check_built_for(self, key: TeacherKey, label_prior: Tensor | None) -> None:
        """Refuses options and label proportions other than those the cache was built with."""
        try:
            same = bool(key == self.key)
        except Exception:  # arrays that cannot be compared: what they are is said below
            same = False
        if not same:
            check_options(*key[:4])
            as_bool(key[4], "not_true")
            name, built, given = next(
                x for x in zip(ASDOptions.TEACHER_FIELDS, self.key, key, strict=True) if x[1] != x[2]
            )
            raise ValueError(
                f"{name} = {given}, but the teacher cache was built with {name} = {built}; pass the same value to both"
            )
        if label_prior is None or label_prior is self.label_prior:
            return
        check_proportions(label_prior)
        require(
            label_prior.device == self.label_prior.device,
            f"label_prior is on {label_prior.device} but the teacher cache is on {self.label_prior.device}; move both "
            "to one device, or pass None",
        )
        if not readable(label_prior) or not readable(self.label_prior):
            return
        built_with = self.label_prior
        check_memory(built_with, "the teacher cache's label_prior")
        if label_prior.shape != built_with.shape or not torch.equal(label_prior.to(built_with.dtype), built_with):
            raise ValueError(
                "label_prior differs from the one the teacher cache was built with; pass None, or build the cache anew"
            )


def check_kind(teacher_logits: object) -> None:
    """Refuses what is neither a tensor, nor rows of a cache, nor None, and says what to pass."""
    if teacher_logits is None or isinstance(teacher_logits, (Tensor, TeacherRows)):
        return
    if isinstance(teacher_logits, CachedTeacher):
        raise wrong_type(
            teacher_logits, "teacher_logits", "the rows of it that belong to this batch: pass cache[rows], or cache[:]"
        )
    raise wrong_type(teacher_logits, "teacher_logits", "a torch.Tensor, or cache[rows] of a TeacherCache")

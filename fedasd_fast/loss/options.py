"""The hyper-parameters of the ASD loss as one object, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from ..kernels.checks import as_bool, as_float, as_int64, check_options

TeacherKey: TypeAlias = tuple[float, float, float, float, bool]  # the values of ASDOptions.TEACHER_FIELDS


@dataclass(frozen=True, kw_only=True)
class ASDOptions:
    """The keywords that all loss functions share.  Making one costs as much as a small fused loss, so the fused calls
    of `functional` pass the plain values to the kernel, which has the same checks."""

    temperature: float = 2.0
    entropy_temperature: float = 1.0
    entropy_power: float = 1.0
    prior_power: float = 1.0
    weighting: str = "adaptive"
    divergence: str = "kl"
    not_true: bool = False
    ignore_index: int = -100

    TEACHER_FIELDS: ClassVar = ("temperature", "entropy_temperature", "entropy_power", "prior_power", "not_true")

    def __post_init__(self) -> None:
        check_options(
            self.temperature, self.entropy_temperature, self.entropy_power, self.prior_power, self.weighting,
            self.divergence,
        )  # fmt: skip
        for name in self.TEACHER_FIELDS[:4]:
            object.__setattr__(self, name, as_float(getattr(self, name), name))
        object.__setattr__(self, "not_true", as_bool(self.not_true, "not_true"))
        object.__setattr__(self, "ignore_index", as_int64(self.ignore_index, "ignore_index"))

    @property
    def teacher_key(self) -> TeacherKey:
        """What a TeacherCache depends on."""
        return self.temperature, self.entropy_temperature, self.entropy_power, self.prior_power, self.not_true

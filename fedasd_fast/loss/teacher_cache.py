"""The teacher's forward pass, done once a round.

The weight alpha_i and the teacher's distribution depend on the global model, the sample and the client only.  So for
a frozen teacher in eval mode and inputs that do not change within the round, one pass over the client's samples is
enough.  With random augmentation the student must see the very inputs the cache was built from; otherwise it is an
approximation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..kernels import loader
from ..kernels.checks import INTEGERS, check_logits, readable, require
from . import reference


@dataclass(eq=False, slots=True)  # made in every step: a frozen one takes twice as long to make
class TeacherRows:
    """The rows of a cache that belong to a batch: `cache[rows]`.  Nothing is copied; kernels gather by themselves."""

    cache: TeacherCache
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
class TeacherCache:
    """What a step needs of the teacher, for each sample of one client ([N, ..]) or of K clients ([K, N, ..])."""

    rows: Tensor  # [.., N, C] softmax(t / tau), or its logarithm with log_rows
    constant: Tensor  # [.., N] float64: sum_c s log s (0 with log_rows)
    log_weight: Tensor  # [.., N] float64: log of the un-normalised alpha
    targets: Tensor  # [.., N]
    label_prior: Tensor  # [.., C]
    key: tuple[
        float, float, float, float, bool
    ]  # temperature, entropy_temperature, entropy_power, prior_power, not_true
    log_rows: bool

    @staticmethod
    def from_logits(
        teacher_logits: Tensor,
        targets: Tensor,
        label_prior: Tensor,
        *,
        temperature: float = 2.0,
        entropy_temperature: float = 1.0,
        entropy_power: float = 1.0,
        prior_power: float = 1.0,
        not_true: bool = False,
        dtype: torch.dtype = torch.float32,
        log_rows: bool = False,
        ignore_index: int = -100,
    ) -> TeacherCache:
        """From teacher logits [N, C] or [K, N, C].

        dtype is what the rows are stored in; float16 keeps probabilities better than bfloat16.  log_rows stores
        log-probabilities: a step then costs one more exponential a class, but reverse_kl stays exact for classes whose
        probability underflows.
        """
        check_logits(teacher_logits, "teacher_logits")
        key = (temperature, entropy_temperature, entropy_power, prior_power, not_true)
        make: Callable[..., tuple[Tensor, Tensor, Tensor]]
        if teacher_logits.device.type in loader.devices:
            make = torch.ops.fedasd.teacher_cache.default
        else:
            make = reference.teacher_cache
            loader.warn_once()
        rows, constant, log_weight = make(teacher_logits, targets, label_prior, *key, ignore_index, dtype, log_rows)
        return TeacherCache(rows, constant, log_weight, targets.long(), label_prior, key, log_rows)

    @staticmethod
    def build(
        model: nn.Module,
        inputs: Tensor,
        targets: Tensor,
        label_prior: Tensor,
        *,
        temperature: float = 2.0,
        entropy_temperature: float = 1.0,
        entropy_power: float = 1.0,
        prior_power: float = 1.0,
        not_true: bool = False,
        batch_size: int = 512,
        dtype: torch.dtype = torch.float32,
        log_rows: bool = False,
        ignore_index: int = -100,
    ) -> TeacherCache:
        """One forward pass of `model` over inputs [N, ...] (or [K, N, ...]) in eval mode, which is restored after.

        Inputs may live elsewhere than the model: batches are moved to it, and the cache stays where the targets are.
        """
        require(batch_size > 0, f"batch_size = {batch_size}; expected a positive number")
        lead = targets.shape
        require(
            tuple(inputs.shape[: len(lead)]) == tuple(lead),
            f"inputs has shape {tuple(inputs.shape)}; expected {[*lead, '...']}, one input for each of the targets",
        )
        logits = _forward(model, inputs.flatten(0, len(lead) - 1), batch_size)
        return TeacherCache.from_logits(
            logits.to(targets.device).unflatten(0, lead),
            targets,
            label_prior,
            temperature=temperature,
            entropy_temperature=entropy_temperature,
            entropy_power=entropy_power,
            prior_power=prior_power,
            not_true=not_true,
            dtype=dtype,
            log_rows=log_rows,
            ignore_index=ignore_index,
        )

    def __getitem__(self, rows: Tensor | slice | Sequence[int]) -> TeacherRows:
        """The view of these rows ([B], or [K, B] with a client dimension) for one batch."""
        if isinstance(rows, slice):
            rows = torch.arange(self.rows.shape[-2], device=self.rows.device)[rows].expand(*self.targets.shape[:-1], -1)
        elif not isinstance(rows, Tensor):
            rows = torch.as_tensor(rows, device=self.rows.device)
        if rows.dtype not in INTEGERS or rows.dim() != self.targets.dim():
            raise IndexError(
                f"rows has dtype {rows.dtype} and shape {tuple(rows.shape)}; expected int64 or int32 row numbers "
                f"with {self.targets.dim()} dimension(s); for a mask use mask.nonzero().squeeze(-1)"
            )
        return TeacherRows(self, rows)

    def __len__(self) -> int:
        return self.rows.shape[-2]

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in (self.rows, self.constant, self.log_weight, self.targets, self.label_prior))

    def __repr__(self) -> str:
        return f"TeacherCache(shape={tuple(self.rows.shape)}, dtype={self.rows.dtype}, {self.nbytes:,} bytes)"

    def check_built_for(self, key: tuple[float, float, float, float, bool], label_prior: Tensor | None) -> None:
        """Refuses hyper-parameters and label shares other than the cache's own."""
        if key != self.key:
            names = ("temperature", "entropy_temperature", "entropy_power", "prior_power", "not_true")
            name, built, asked = next(x for x in zip(names, self.key, key, strict=True) if x[1] != x[2])
            raise ValueError(
                f"{name} = {asked}, but the teacher cache was built with {name} = {built}; pass the same value to both"
            )
        if label_prior is None or label_prior is self.label_prior or label_prior.device.type != "cpu":
            return
        if not torch.compiler.is_compiling() and not torch.equal(label_prior, self.label_prior):
            raise ValueError(
                "label_prior differs from the one the teacher cache was built with; pass None, or build the cache anew"
            )


def label_prior(targets: Tensor, num_classes: int, *, ignore_index: int = -100) -> Tensor:
    """Shares of each label, counts / n (Eq. 12), over a client's whole training set: [N] -> [C], [K, N] -> [K, C].

    Labels equal to ignore_index (padding) do not count.
    """
    require(targets.dtype in INTEGERS, f"targets has dtype {targets.dtype}; expected int64 or int32: call .long()")
    require(targets.dim() in (1, 2), f"targets has shape {tuple(targets.shape)}; expected [N], or [K, N]")
    require(num_classes > 0, f"num_classes = {num_classes}; expected a positive number")
    valid = targets != ignore_index
    outside = valid & ((targets < 0) | (targets >= num_classes))
    if outside.any():
        raise ValueError(f"targets has label {targets[outside][0].item()}; expected labels in [0, {num_classes})")
    require(bool(valid.any()), "targets has no label to count")
    counts = torch.zeros(*targets.shape[:-1], num_classes, dtype=torch.get_default_dtype(), device=targets.device)
    counts.scatter_add_(-1, targets.long().where(valid, 0), valid.to(counts.dtype))
    return counts / valid.sum(-1, keepdim=True).clamp_min(1)


@contextmanager
def _eval_mode(model: nn.Module) -> Iterator[None]:
    """Each submodule gets its own mode back: some users keep parts of a training model in eval mode."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _forward(model: nn.Module, inputs: Tensor, batch_size: int) -> Tensor:
    device = next((p.device for p in model.parameters()), inputs.device)
    with _eval_mode(model), torch.no_grad():
        outputs = [model(batch.to(device)) for batch in inputs.split(batch_size)]
    for output in outputs:
        if not isinstance(output, Tensor) or output.dim() != 2:
            found = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
            raise ValueError(
                f"the model returned {found}; expected logits [B, C]: wrap it in a module that returns them"
            )
    return torch.cat(outputs)

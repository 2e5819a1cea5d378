"""TeacherCache: the outputs of the teacher on a client's samples, from one forward pass a round.

The weight alpha_i and the teacher's distribution depend on the global model, the sample and the client only.  So for
a frozen teacher in eval mode and inputs that do not change within the round, one pass over the client's samples is
enough.  With random augmentation the student must see the very inputs the cache was built from; otherwise it is an
approximation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..kernels import loader
from ..kernels.checks import (
    FLOATS,
    as_bool,
    as_int64,
    check_integers,
    check_memory,
    check_proportions,
    check_teacher,
    check_tensor,
    require,
    wrong_type,
)
from ..kernels.client_dimension import check_dimensions
from . import reference
from .cached_teacher import CachedTeacher
from .options import ASDOptions


@dataclass(frozen=True, eq=False, repr=False)
class TeacherCache(CachedTeacher):
    """The outputs of a frozen teacher on one client's samples ([N, ..]) or on those of K clients ([K, N, ..])."""

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
        client_dim: int | None = None,
    ) -> TeacherCache:
        """From teacher logits [N, C], targets [N] and label_prior [C]; with client_dim=0 [K, N, C] and so on.

        dtype is what the rows are stored in; float16 keeps probabilities better than bfloat16.  log_rows stores
        log-probabilities: a step then costs one more exponential a class, but reverse_kl stays exact for classes whose
        probability underflows.
        """
        check_tensor(teacher_logits, "teacher_logits")
        check_dimensions(teacher_logits, "teacher_logits", client_dim)
        options = ASDOptions(
            temperature=temperature, entropy_temperature=entropy_temperature, entropy_power=entropy_power,
            prior_power=prior_power, not_true=not_true, ignore_index=ignore_index,
        )  # fmt: skip
        return _from_logits(teacher_logits, targets, label_prior, options, dtype, log_rows)

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
        client_dim: int | None = None,
    ) -> TeacherCache:
        """One forward pass of `model` over inputs [N, ...] (client_dim=0: [K, N, ...]) in eval mode, which is restored.

        Inputs may live elsewhere than the model: batches are moved to it, and the cache stays where the targets are.
        """
        batch_size = as_int64(batch_size, "batch_size")
        require(batch_size > 0, f"batch_size = {batch_size}; expected a positive number")
        _check_build(model, inputs, targets, label_prior, dtype, client_dim)
        options = ASDOptions(
            temperature=temperature, entropy_temperature=entropy_temperature, entropy_power=entropy_power,
            prior_power=prior_power, not_true=not_true, ignore_index=ignore_index,
        )  # fmt: skip
        lead = targets.shape
        logits = _forward(model, inputs.flatten(0, len(lead) - 1), batch_size)
        logits = logits.to(targets.device).unflatten(0, lead)
        return _from_logits(logits, targets, label_prior, options, dtype, log_rows)


def _check_build(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    label_prior: Tensor,
    dtype: torch.dtype,
    client_dim: int | None,
) -> None:
    """Before the forward pass, which may take long."""
    if not isinstance(model, nn.Module):
        raise wrong_type(model, "model", "a torch.nn.Module")
    check_tensor(inputs, "inputs")
    check_memory(inputs, "inputs")
    check_integers(targets, "targets")
    check_proportions(label_prior)
    lead = tuple(targets.shape)
    check_dimensions(targets, "targets", client_dim, 1)
    require(
        tuple(inputs.shape[: len(lead)]) == lead,
        f"inputs has shape {tuple(inputs.shape)}; expected {[*lead, '...']}, one input for each of the targets",
    )
    _check_dtype(dtype)
    parameter = next(model.parameters(), inputs)
    require(
        not parameter.is_meta or targets.is_meta,
        f"model is on {parameter.device} but targets is on {targets.device}; give the model its weights first",
    )
    require(
        not inputs.is_meta or parameter.is_meta,
        f"inputs is on {inputs.device} but model is on {parameter.device}; pass inputs with values",
    )


def _check_dtype(dtype: torch.dtype) -> None:
    require(dtype in FLOATS, f"dtype = {dtype}; expected float32, float64, float16 or bfloat16")


def _from_logits(
    teacher_logits: Tensor,
    targets: Tensor,
    label_prior: Tensor,
    options: ASDOptions,
    dtype: torch.dtype,
    log_rows: bool,
) -> TeacherCache:
    check_teacher(teacher_logits, targets, label_prior)
    _check_dtype(dtype)
    log_rows = as_bool(log_rows, "log_rows")
    if teacher_logits.device.type in loader.devices:
        rows, constant, log_weight = torch.ops.fedasd.teacher_cache.default(
            teacher_logits, targets, label_prior, *options.teacher_key, options.ignore_index, dtype, log_rows
        )
    else:
        loader.warn_once()
        rows, constant, log_weight = reference.teacher_cache(
            teacher_logits, targets, label_prior, options, dtype, log_rows
        )
    # Copies: the labels and proportions that later calls are compared with must not change with the caller's.
    labels, prior = targets.to(torch.int64, copy=True), label_prior.clone()
    if options.ignore_index >= 0:  # a class: a call that does not ignore it must not use the empty rows
        labels.masked_fill_(labels == options.ignore_index, -1)
    return TeacherCache(rows, constant, log_weight, labels, prior, options.teacher_key, log_rows)


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
        batches = inputs.split(batch_size)
        outputs = [model(batch.to(device)) for batch in batches]
    for output, batch in zip(outputs, batches, strict=True):
        if not isinstance(output, Tensor) or output.dim() != 2 or len(output) != len(batch):
            found = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
            raise ValueError(
                f"the model returned {found} for {len(batch)} inputs; expected logits [B, C]: wrap it in a module that "
                "returns them"
            )
    return torch.cat(outputs)

"""TeacherCache: the outputs of the teacher on a client's samples, from one forward pass a round.

The weight alpha_i and the teacher's distribution depend on the global model, the sample and the client only.  So for
a frozen teacher in eval mode and inputs that do not change within the round, one pass over the client's samples is
enough.  With random augmentation the student must see the very inputs the cache was built from; otherwise it is an
approximation.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..common.safetensors import read_safetensors, write_safetensors
from ..kernels import loader
from ..kernels.checks import (
    FLOATS,
    as_bool,
    as_int64,
    check_integers,
    check_proportions,
    check_teacher,
    check_tensor,
    check_values,
    require,
    wrong_type,
)
from ..kernels.client_dimension import check_dimensions
from . import reference
from .cached_teacher import CachedTeacher
from .label_prior import label_proportions
from .options import ASDOptions
from .teacher_pass import Forward, check_tensors, over_loader, over_tensors

_TENSORS = ("rows", "constant", "log_weight", "targets", "label_prior")
_FORMAT = {"format": "fedasd_fast.TeacherCache", "version": "1"}


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
        dtype: torch.dtype | None = None,
        log_rows: bool = False,
        ignore_index: int = -100,
        client_dim: int | None = None,
    ) -> TeacherCache:
        """From teacher logits [N, C], targets [N] and label_prior [C]; with client_dim=0 [K, N, C] and so on.

        dtype is what the rows are stored in: float64 for float64 logits, else float32, unless told otherwise; float16
        keeps probabilities better than bfloat16.  log_rows stores log-probabilities: a step then costs one more
        exponential a class, but reverse_kl stays exact for classes whose probability underflows.
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
        inputs: Any,
        targets: Tensor | None = None,
        label_prior: Tensor | None = None,
        *,
        temperature: float = 2.0,
        entropy_temperature: float = 1.0,
        entropy_power: float = 1.0,
        prior_power: float = 1.0,
        not_true: bool = False,
        batch_size: int = 512,
        dtype: torch.dtype | None = None,
        log_rows: bool = False,
        ignore_index: int = -100,
        client_dim: int | None = None,
        forward: Forward | None = None,
    ) -> TeacherCache:
        """One forward pass of `model` over the client's samples in eval mode, which is restored.

        inputs is a tensor [N, ...] or a dict of such tensors (passed as keyword arguments), with targets [N] and
        label_prior [C]; with client_dim=0 there is a dimension of K clients before these.  They may live elsewhere than
        the model: batches are moved to it, and the cache stays where the targets are.

        Or inputs is a Dataset or a DataLoader, whose samples are (input, label) or dicts with `labels`; row i of the
        cache is sample i.  A DataLoader that shuffles needs `with_rows(dataset)`.  label_prior is then that of its
        labels, unless it is given, and the cache is on the model's device.

        forward, a function of the model and a batch (as it comes from the inputs, on the model's device), replaces the
        call of the model.  It returns logits [B, C], or an output with `.logits`, as a Hugging Face model does.
        """
        batch_size = as_int64(batch_size, "batch_size")
        require(batch_size > 0, f"batch_size = {batch_size}; expected a positive number")
        if not isinstance(model, nn.Module):
            raise wrong_type(model, "model", "a torch.nn.Module")
        if forward is not None and not callable(forward):
            raise wrong_type(forward, "forward", "a function of model and batch that returns logits")
        _check_dtype(dtype)
        if targets is not None:
            check_integers(targets, "targets")
            check_dimensions(targets, "targets", client_dim, 1)
        if label_prior is not None:
            check_proportions(label_prior)
        options = ASDOptions(
            temperature=temperature, entropy_temperature=entropy_temperature, entropy_power=entropy_power,
            prior_power=prior_power, not_true=not_true, ignore_index=ignore_index,
        )  # fmt: skip
        if isinstance(inputs, (Tensor, Mapping)):
            if targets is None:
                raise wrong_type(targets, "targets", "a torch.Tensor of labels, one for each of the inputs")
            if label_prior is None:
                raise wrong_type(label_prior, "label_prior", "a torch.Tensor: label_prior(targets, num_classes)")
            check_tensors(model, inputs, targets)
            logits = over_tensors(model, inputs, targets, batch_size, forward)
            logits = logits.to(targets.device).unflatten(0, targets.shape)
        else:
            require(client_dim is None, "client_dim = 0, but a Dataset holds one client's samples; leave it out")
            logits, targets = over_loader(model, inputs, targets, batch_size, forward)
            check_dimensions(targets, "targets", None, 1)
        if label_prior is None:
            classes = logits.shape[-1]
            check_values(targets, None, classes, options.ignore_index)
            label_prior = label_proportions(targets, classes, ignore_index=options.ignore_index, dtype=_wide(logits))
        elif not isinstance(inputs, (Tensor, Mapping)):
            label_prior = label_prior.to(logits.device)
        return _from_logits(logits, targets, label_prior, options, dtype, log_rows)

    def to(self, device: torch.device | str | int) -> TeacherCache:
        """The same cache on another device."""
        return replace(self, **{name: getattr(self, name).to(torch.device(device)) for name in _TENSORS})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Into one file in the safetensors format, written whole or not at all."""
        metadata = {**_FORMAT, "key": json.dumps(self.key), "log_rows": json.dumps(self.log_rows)}
        write_safetensors(Path(path), {name: getattr(self, name) for name in _TENSORS}, metadata)

    @staticmethod
    def load(path: str | os.PathLike[str], device: torch.device | str | int = "cpu") -> TeacherCache:
        """What `save` wrote.  Runs no code of the file."""
        tensors, metadata = read_safetensors(Path(path))
        try:
            if {name: metadata.get(name) for name in _FORMAT} != _FORMAT:
                raise ValueError(f"its metadata are {metadata}")
            state = {**tensors, "key": tuple(json.loads(metadata["key"])), "log_rows": json.loads(metadata["log_rows"])}
            cache = TeacherCache.__new__(TeacherCache)
            cache.__setstate__(state)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} does not hold a TeacherCache, as its save() writes: {error}") from error
        return cache.to(device)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """For pickle and torch.load, also with weights_only: whatever the file says, the tensors fit each other."""
        if set(state) != {*_TENSORS, "key", "log_rows"}:
            raise ValueError(f"a teacher cache has {sorted([*_TENSORS, 'key', 'log_rows'])}, not {sorted(state)}")
        _check_state(**state)
        self.__dict__.update(state)


# torch.load takes only what it knows to be harmless; __setstate__ checks what it is given.
torch.serialization.add_safe_globals([TeacherCache])


def _check_state(
    rows: Tensor, constant: Tensor, log_weight: Tensor, targets: Tensor, label_prior: Tensor, key: Any, log_rows: Any
) -> None:
    check_teacher(rows, targets, label_prior)
    for name, x in (("constant", constant), ("log_weight", log_weight)):
        check_tensor(x, name)
        require(
            x.dtype == torch.float64 and x.shape == targets.shape,
            f"{name} has dtype {x.dtype} and shape {tuple(x.shape)}; expected float64 and {tuple(targets.shape)}",
        )
    require(isinstance(key, tuple) and len(key) == 5, f"key = {key!r}; expected five options")
    options = dict(zip(ASDOptions.TEACHER_FIELDS, key, strict=True))
    require(ASDOptions(**options).teacher_key == key, f"key = {key!r}; expected four numbers and True or False")
    require(isinstance(log_rows, bool), f"log_rows = {log_rows!r}; expected True or False")


def _check_dtype(dtype: torch.dtype | None) -> None:
    require(dtype is None or dtype in FLOATS, f"dtype = {dtype}; expected float32, float64, float16, bfloat16 or None")


def _wide(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def _from_logits(
    teacher_logits: Tensor,
    targets: Tensor,
    label_prior: Tensor,
    options: ASDOptions,
    dtype: torch.dtype | None,
    log_rows: bool,
) -> TeacherCache:
    check_teacher(teacher_logits, targets, label_prior)
    _check_dtype(dtype)
    dtype = dtype or _wide(teacher_logits)
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

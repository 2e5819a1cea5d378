"""Argument checks of the pure-PyTorch path, which are also the shape rules for tracing (fake tensors).

The compiled ops have the same rules in csrc/torch/checks.cpp, where they cost nothing.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import Tensor

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32)


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def wrong_type(x: object, name: str, expected: str) -> TypeError:
    remedy = f": call torch.from_numpy({name})" if type(x).__name__ == "ndarray" and "torch.Tensor" in expected else ""
    return TypeError(f"{name} is a {type(x).__name__}; expected {expected}{remedy}")


def as_float(x: Any, name: str) -> float:
    """Any number, also a tensor of one; not a str, which float() would read."""
    if type(x) is float or isinstance(x, (torch.SymFloat, torch.SymInt)):
        return x  # type: ignore[return-value]
    if isinstance(x, (str, bytes, bytearray)):
        raise wrong_type(x, name, "a number")
    try:
        return float(x)
    except Exception as error:
        raise wrong_type(x, name, "a number") from error


def as_int64(x: Any, name: str) -> int:
    try:
        value = operator.index(x)
    except Exception as error:
        raise wrong_type(x, name, "an integer of at most 64 bits") from error
    if not -(2**63) <= value < 2**63:
        raise wrong_type(x, name, "an integer of at most 64 bits")
    return value


def as_bool(x: Any, name: str) -> bool:
    try:
        return bool(x)
    except Exception as error:
        raise wrong_type(x, name, "True or False") from error


def check_finite(x: Any, name: str) -> None:
    require(math.isfinite(as_float(x, name)), f"{name} = {x}; expected a finite number")


def check_tensor(x: Any, name: str) -> None:
    if not isinstance(x, Tensor):
        raise wrong_type(x, name, "a torch.Tensor")
    require(x.layout == torch.strided, f"{name} has layout {x.layout}; expected a dense one: call .to_dense()")


def check_integers(x: Any, name: str) -> None:
    check_tensor(x, name)
    require(x.dtype in INTEGERS, f"{name} has dtype {x.dtype}; expected int64 or int32: call .long()")
    check_memory(x, name)


def check_memory(tensor: Tensor, name: str) -> None:
    """Refuses a tensor whose memory is gone, as untyped_storage().resize_(0) leaves it: torch would read beyond it."""
    if 0 in tensor.shape or not _plain(tensor):
        return
    require(
        8 * math.prod(tensor.shape) < 2**63,
        f"{name} has shape {tuple(tensor.shape)}, too large to compute with; pass fewer rows at a time",
    )
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    needed = (tensor.storage_offset() + last + 1) * tensor.element_size()
    present = tensor.untyped_storage().nbytes()
    require(
        needed <= present,
        f"{name} has shape {tuple(tensor.shape)}, but its storage holds {present} of the {needed} bytes that this "
        "takes; pass a tensor whose storage was not freed or resized",
    )


def check_options(
    temperature: float,
    entropy_temperature: float,
    entropy_power: float,
    prior_power: float,
    weighting: str = "adaptive",
    divergence: str = "kl",
) -> None:
    for name, x in (("temperature", temperature), ("entropy_temperature", entropy_temperature)):
        value = as_float(x, name)
        require(value > 0 and math.isfinite(value), f"{name} = {x}; expected a positive finite number")
    for name, x in (("entropy_power", entropy_power), ("prior_power", prior_power)):
        check_finite(x, name)
    for name, choice in (("weighting", weighting), ("divergence", divergence)):
        if not isinstance(choice, str):
            raise wrong_type(choice, name, "a str")
    require(weighting in ("adaptive", "uniform"), f"weighting = {weighting!r}; expected 'adaptive' or 'uniform'")
    require(
        divergence in ("kl", "reverse_kl", "js"), f"divergence = {divergence!r}; expected 'kl', 'reverse_kl' or 'js'"
    )


def check_logits(logits: Tensor, name: str) -> None:
    check_tensor(logits, name)
    require(logits.dtype in FLOATS, f"{name} has dtype {logits.dtype}; expected float32, float64, float16 or bfloat16")
    shape = tuple(logits.shape)
    require(logits.dim() in (2, 3), f"{name} has shape {shape}; expected [B, C], or [K, B, C] with client_dim=0")
    require(logits.shape[-1] > 0, f"{name} has shape {shape}; expected at least one class")
    check_memory(logits, name)


def check_normalizer(alpha_normalizer: Tensor, student: Tensor) -> None:
    """float64, one number for each client; never looks at a value."""
    check_tensor(alpha_normalizer, "alpha_normalizer")
    require(
        alpha_normalizer.dtype == torch.float64,
        f"alpha_normalizer has dtype {alpha_normalizer.dtype}; expected a floating-point number",
    )
    _check_shape(alpha_normalizer, student.shape[:-2], "alpha_normalizer", "one number, or one for each client")
    _check_device(alpha_normalizer, student, "alpha_normalizer")
    check_undifferentiated(alpha_normalizer, "alpha_normalizer")
    check_memory(alpha_normalizer, "alpha_normalizer")


def check_inputs(
    student: Tensor,
    teacher: Tensor | None,
    rows: Tensor | None,
    targets: Tensor,
    label_prior: Tensor | None,
    weighting: str,
    asd_weight: float = 1.0,
) -> None:
    """Shapes, types and devices; never looks at a value.  With `rows`, teacher holds the rows of a cache."""
    check_logits(student, "student_logits")
    if teacher is None:
        require(
            asd_weight == 0,
            f"teacher_logits = None, but asd_weight = {asd_weight}; pass the teacher's logits or cache[rows], "
            "or asd_weight=0 for the cross-entropy alone",
        )
        require(rows is None, "rows is given without a teacher cache; pass cache[rows] of a TeacherCache")
    elif rows is None:
        check_logits(teacher, "teacher_logits")
        _check_shape(teacher, student.shape, "teacher_logits", "the shape of student_logits")
        check_undifferentiated(teacher, "teacher_logits")
        _check_device(teacher, student, "teacher_logits")
    else:
        require(
            teacher.shape[:-2] == student.shape[:-2] and teacher.shape[-1] == student.shape[-1],
            f"the teacher cache has shape {tuple(teacher.shape)}, which does not fit {tuple(student.shape)} of "
            "student_logits; expected [N, C], or [K, N, C] with a client dimension",
        )
        _check_integers(rows, "rows", student.shape[:-1], "one cache row for each row of student_logits")
        _check_device(rows, student, "rows")
        _check_device(teacher, student, "the teacher cache")
    _check_integers(targets, "targets", student.shape[:-1], "one label for each row of student_logits")
    _check_device(targets, student, "targets")
    if label_prior is not None:
        _check_prior(label_prior, student, "student_logits")
    else:
        require(
            teacher is None or rows is not None or weighting == "uniform",
            "label_prior = None, but adaptive weights need the client's label distribution; pass label_prior(targets, "
            "num_classes), a TeacherCache, or weighting='uniform'",
        )


def check_teacher(teacher: Tensor, targets: Tensor, label_prior: Tensor) -> None:
    """The same for building a cache."""
    check_logits(teacher, "teacher_logits")
    check_undifferentiated(teacher, "teacher_logits")
    _check_integers(targets, "targets", teacher.shape[:-1], "one label for each row of teacher_logits")
    _check_device(targets, teacher, "targets", "teacher_logits")
    _check_prior(label_prior, teacher, "teacher_logits")


def check_cache(rows: Tensor | None, cache: tuple[Tensor | None, ...]) -> None:
    """The tensors that the ops take beside the rows of a cache: labels, constants and log weights."""
    require(
        rows is None or all(tensor is not None for tensor in cache),
        "rows is given without the rest of the cache; pass cache[rows] of a TeacherCache",
    )


def check_proportions(label_prior: Tensor) -> None:
    check_tensor(label_prior, "label_prior")
    check_undifferentiated(label_prior, "label_prior")
    require(
        label_prior.is_floating_point(),
        f"label_prior has dtype {label_prior.dtype}; expected proportions (floating point), "
        "as label_prior(targets, num_classes) gives",
    )
    check_memory(label_prior, "label_prior")


def _check_prior(label_prior: Tensor, logits: Tensor, logits_name: str) -> None:
    check_proportions(label_prior)
    expected = (*logits.shape[:-2], logits.shape[-1])
    _check_shape(label_prior, expected, "label_prior", "[C], or [K, C] with a client dimension")
    _check_device(label_prior, logits, "label_prior", logits_name)


def check_undifferentiated(tensor: Tensor, name: str) -> None:
    require(
        not tensor.requires_grad,
        f"{name} requires grad, but ASD has no gradient for it; pass {name}.detach() or compute it under "
        "torch.no_grad()",
    )


def check_values(targets: Tensor, label_prior: Tensor | None, classes: int, ignore_index: int) -> None:
    """Labels and shares, where reading them costs no device synchronisation and no graph break."""
    if not readable(targets):
        return
    valid = valid_rows(targets, ignore_index)
    bad = valid & ((targets < 0) | (targets >= classes))
    if bad.any():
        raise ValueError(
            f"targets{_first(bad)} = {targets[bad][0].item()} is neither a class in [0, {classes}) nor ignore_index = "
            f"{ignore_index}; check the labels or num_classes of the model"
        )
    if label_prior is None or not readable(label_prior):
        return
    share = label_prior.gather(-1, targets.long().where(valid, 0))
    bad = valid & ~((share > 0) & (share < math.inf))
    if bad.any():
        raise ValueError(
            f"label_prior = {share[bad][0].item()} for a label that occurs (targets{_first(bad)} = "
            f"{targets[bad][0].item()}); a proportion must be positive: use label_prior(targets, num_classes) "
            "over the client's whole training set"
        )


def valid_rows(targets: Tensor, ignore_index: int) -> Tensor:
    """As int64: compared with an int32 label, a larger ignore_index would be cut down to 32 bits."""
    return targets.long() != ignore_index


def readable(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and _plain(tensor)


def _plain(tensor: Tensor) -> bool:
    """Neither traced nor wrapped: it has numbers for its sizes and a storage of its own."""
    plain = type(tensor) in (Tensor, torch.nn.Parameter) and not torch.compiler.is_compiling()
    return plain and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _first(mask: Tensor) -> list[int]:
    return [int(i) for i in mask.nonzero()[0]]


def _check_shape(tensor: Tensor, expected: tuple[int, ...] | torch.Size, name: str, meaning: str) -> None:
    require(
        tuple(tensor.shape) == tuple(expected),
        f"{name} has shape {tuple(tensor.shape)}; expected {tuple(expected)} ({meaning})",
    )


def _check_integers(tensor: Tensor, name: str, expected: tuple[int, ...] | torch.Size, meaning: str) -> None:
    check_integers(tensor, name)
    _check_shape(tensor, expected, name, meaning)


def _check_device(tensor: Tensor, logits: Tensor, name: str, logits_name: str = "student_logits") -> None:
    require(
        tensor.device == logits.device,
        f"{name} is on {tensor.device} but {logits_name} is on {logits.device}; move both to one device",
    )

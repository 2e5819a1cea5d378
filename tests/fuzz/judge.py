"""Makes a call and judges what comes of it: right, refused clearly, refused unclearly, or wrong."""

from __future__ import annotations

import re
import warnings
from typing import Any

import torch
from torch import Tensor

import fedasd_fast as fa
from fedasd_fast.loss import reference
from fedasd_fast.loss.cached_teacher import TeacherRows
from fedasd_fast.loss.options import ASDOptions

from .calls import LOSSES, Call

REFUSALS = (ValueError, TypeError, RuntimeError, IndexError)
NAMES = (
    "student_logits", "teacher_logits", "targets", "label_prior", "rows", "asd_weight", "ce_weight", "temperature",
    "entropy_temperature", "entropy_power", "prior_power", "weighting", "divergence", "not_true", "ignore_index",
    "implementation", "model", "inputs", "batch_size", "dtype", "log_rows", "num_classes", "cache_targets",
    "client_dim", "alpha_normalizer", "label_smoothing", "class_weights", "reduction",
)  # fmt: skip
# Our messages begin with the argument; Python's own, about a signature, end with it; torch says how much memory lacks.
CLEAR = re.compile(
    rf"^(the )?(teacher cache|cache's row numbers|{'|'.join(NAMES)})\b|^unknown option|"
    r"^the model returned|can't allocate memory: you tried|unexpected keyword argument '|"
    r"missing \d+ required (positional|keyword-only) argument"
)


def judge(call: Call) -> tuple[str, str]:
    """The outcome, and what to say of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            got = _run(call)
        except REFUSALS as error:
            message = str(error)
            if not CLEAR.search(message):
                return "unclear", f"{type(error).__name__}: {message}"
            expected = "probability of 0" in message  # reverse_kl with a class that underflowed in the cache
            return (
                ("refused", message) if call.spoilt or expected else ("wrong", f"a valid call was refused: {message}")
            )
        except Exception as error:
            return "unclear", f"{type(error).__name__}: {error}"
        try:
            difference = _difference(call, got)
        except Exception as error:
            return "wrong", f"accepted, but the reference says {type(error).__name__}: {error}"
    return ("wrong", difference) if difference else ("right", "")


def _run(call: Call) -> Any:
    arguments = dict(call.arguments)
    teacher = arguments.get("teacher_logits")
    if isinstance(teacher, tuple):
        _, cache, rows = teacher
        arguments["teacher_logits"] = cache[rows]
    if call.function == "label_prior":
        return fa.label_prior(**arguments)
    if call.function in ("from_logits", "build"):
        return getattr(fa.TeacherCache, call.function)(**arguments)
    if call.function == "ASDLoss":
        tensors = {
            name: arguments.pop(name) for name in ("student_logits", "targets", "label_prior") if name in arguments
        }
        if "teacher_logits" in arguments:
            tensors["teacher_logits"] = arguments.pop("teacher_logits")
        loss = fa.ASDLoss(**arguments)(**tensors)
    else:
        loss = getattr(fa, call.function)(**arguments)
        if call.function == "asd_loss_and_grad":
            return loss
    student = arguments.get("student_logits", call.arguments["student_logits"])
    gradient = None
    if student.requires_grad:
        (gradient,) = torch.autograd.grad(loss.sum(), student)
    return loss, gradient


def _difference(call: Call, got: Any) -> str:
    if call.function == "label_prior":
        return _label_prior_difference(call.arguments, got)
    if call.function in LOSSES:
        return _loss_difference(call, *got)
    return _cache_difference(call, got)


def _label_prior_difference(arguments: dict[str, Any], got: Tensor) -> str:
    targets, classes = arguments["targets"], int(arguments["num_classes"])
    if targets.is_meta:
        return "" if got.shape == (*targets.shape[:-1], classes) else f"shape {got.shape}"
    ignore_index = int(arguments.get("ignore_index", -100))
    for own, shares in zip(targets.reshape(-1, targets.shape[-1]), got.reshape(-1, classes), strict=True):
        labels = own.long()[own.long() != ignore_index]
        expected = torch.bincount(labels, minlength=classes).double() / max(len(labels), 1)
        if not torch.allclose(shares.double(), expected, atol=1e-6):
            return f"{shares} instead of {expected}"
    return ""


def _cache_difference(call: Call, got: fa.TeacherCache) -> str:
    given = dict(call.arguments)
    targets, prior = given.pop("targets"), given.pop("label_prior")
    given.pop("batch_size", None)
    if call.function == "build":
        model, inputs = given.pop("model"), given.pop("inputs")
        with torch.no_grad():
            logits = model(inputs.flatten(0, targets.dim() - 1)).unflatten(0, targets.shape)
    else:
        logits = given.pop("teacher_logits")
    given.pop("client_dim", None)
    wide = torch.float64 if logits.dtype == torch.float64 else torch.float32
    dtype, log_rows = given.pop("dtype", None) or wide, bool(given.pop("log_rows", False))
    expected = reference.teacher_cache(logits.double(), targets, prior, ASDOptions(**given), dtype, log_rows)
    if targets.is_meta:
        return ""
    computed = torch.float64 if logits.dtype == torch.float64 else torch.float32
    eps = max(torch.finfo(dtype).eps, 4 * torch.finfo(computed).eps)
    valid = targets.long() != int(given.get("ignore_index", -100))
    for name, one, other in zip(
        ("rows", "constant", "log_weight"), (got.rows, got.constant, got.log_weight), expected, strict=True
    ):
        a, b = one[valid].double(), other[valid].to(one.dtype).double()
        size = b.abs().where(b.isfinite(), 0).max().item() if b.numel() else 0.0
        scale = 1 + abs(float(given.get("entropy_power", 1))) + abs(float(given.get("prior_power", 1)))
        # What the stored type rounds to 0 or to infinity may stay a small or large number on one side.
        near = torch.isclose(a, b, rtol=4 * eps, atol=eps * scale * (4 + size), equal_nan=True)
        near |= (a == b) | (a.isnan() & b.isinf()) | (a.isinf() & b.isnan())
        if not near.all():
            return f"{name}: {a[~near][0].item()} instead of {b[~near][0].item()}"
    return ""


def _loss_difference(call: Call, loss: Tensor, gradient: Tensor | None) -> str:
    given = dict(call.arguments)
    given.pop("implementation", None)
    student, teacher = given.pop("student_logits"), given.pop("teacher_logits", None)
    if isinstance(teacher, tuple):
        _, cache, rows = teacher
        teacher = cache[rows]
    targets, prior = given.pop("targets"), given.pop("label_prior", None)
    computed = torch.float64 if student.dtype == torch.float64 else torch.float32
    wide = student.detach().double()
    if isinstance(teacher, Tensor):
        teacher = teacher.to(computed).double()  # the kernels compute in the student's precision
    asd_weight, ce_weight = (
        float(given.pop("asd_weight", 1)),
        float(given.pop("ce_weight", call.function != "asd_loss")),
    )
    leaf = wide.requires_grad_()
    expected = fa.reference.asd_objective(leaf, teacher, targets, prior, asd_weight, ce_weight=ce_weight, **given)
    (slope,) = torch.autograd.grad(expected.sum(), leaf)
    wide, expected, each = wide.detach(), expected.detach(), given.get("reduction") == "none"
    if loss.shape != student.shape[: -1 if each else -2] or (gradient is not None and gradient.shape != student.shape):
        return f"shapes {tuple(loss.shape)}, {None if gradient is None else tuple(gradient.shape)}"
    if student.is_meta:
        return ""
    eps, tau = torch.finfo(computed).eps, float(given.get("temperature", 2))
    largest = max(_largest(wide), 1.0)
    if isinstance(teacher, Tensor):
        largest = max(largest, _largest(teacher))
    elif isinstance(teacher, TeacherRows):
        largest = max(largest, _largest(teacher.cache.rows.double()) * tau)
    powers = 1 + abs(float(given.get("entropy_power", 1))) + abs(float(given.get("prior_power", 1)))
    weights = _weights(teacher, targets, prior, given) * (max(targets.shape[-1], 1) if each else 1)
    reach = weights * abs(asd_weight) * (1 + largest / tau) + abs(ce_weight) * largest
    tolerance = 32 * eps * (reach + powers * expected.abs()) + 1e-12
    narrow = expected.to(loss.dtype).double()
    same = (loss.double() - narrow).abs() <= tolerance
    if isinstance(teacher, TeacherRows):
        # Rounded rows do not sum to one, and a divergence below 0 counts as 0 in the kernels.
        stored = max(torch.finfo(teacher.cache.rows.dtype).eps, torch.finfo(torch.float32).eps)
        rise = (loss.double() - narrow) * (1 if asd_weight > 0 else -1)
        same |= (rise > 0) & (rise <= 8 * stored * abs(asd_weight) * weights)
    same |= (loss == narrow) | (loss.isnan() & narrow.isnan())
    if not same.all():
        return f"loss {loss[~same].flatten()[0].item()} instead of {expected[~same].flatten()[0].item()}"
    if gradient is None:
        return ""
    finite = expected.isfinite() & narrow.isfinite()
    finite = finite.all(-1) if each else finite
    narrow = slope.to(gradient.dtype).double()
    stored = torch.finfo(gradient.dtype)
    room = 32 * eps * (weights * abs(asd_weight) / tau * (1 + largest / tau) * powers + abs(ce_weight)) + stored.tiny
    near = (gradient.double() - narrow).abs() <= room + (4 * stored.eps + 256 * eps * powers) * narrow.abs()
    near |= (gradient == narrow) | ~finite[..., None, None] | torch.tensor(room > stored.max)
    if not near.all():
        return f"gradient {gradient[~near][0].item()} instead of {slope[~near][0].item()}"
    return ""


def _weights(teacher: Any, targets: Tensor, prior: Tensor | None, given: dict[str, Any]) -> float:
    """At most this is the sum of alpha over a client's rows: 1, unless a normaliser is given."""
    if teacher is None or given.get("alpha_normalizer") is None:
        return 1.0
    names = ("entropy_temperature", "entropy_power", "prior_power", "ignore_index", "client_dim")
    options = {name: given[name] for name in names if name in given}
    mean = fa.alpha_normalizer(teacher, targets, prior, **options) / given["alpha_normalizer"]
    return max(1.0, mean.max().item()) if mean.numel() else 1.0


def _largest(x: Tensor) -> float:
    return float(x.abs().where(x.isfinite(), 0).max()) if x.numel() else 0.0

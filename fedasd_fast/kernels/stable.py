"""The functions of `_C` on `_stable`, the build for every torch since 2.10: same names, same errors.

LibTorch's stable ABI has kernels and no autograd: the derivative of the loss, and what autograd must know of the ops
that write, are here.  They are registered for torch.ops.fedasd, and the package calls them directly.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .checks import as_bool, as_float, as_int64, check_tensor, check_undifferentiated, require, wrong_type
from .ops import TENSORS, vmap_rule

_stable = importlib.import_module("fedasd_fast._stable")
build_info, select_cpu_capability = _stable.build_info, _stable.select_cpu_capability
set_training_stop = _stable.set_training_stop

# As in torch's own ops that are written in Python.
_below_autograd = torch._C._AutoDispatchBelowAutograd
_transforms_active = torch._C._are_functorch_transforms_active

_NO_SECOND_DERIVATIVE = (
    "the fused ASD loss has no second derivative; use implementation='reference' (fedasd_fast.reference), which has"
)
_NO_FORWARD_MODE = "the fused ASD loss has no forward-mode derivative; use implementation='reference'"

# The words of an argument of each type in an op's schema.
_EXPECTED = {"int[]": "a list of integers", "float[]": "a list of numbers"}


def _check_argument(value: Any, name: str, kind: str) -> None:
    if kind.startswith("Tensor"):
        check_tensor(value, name)
    elif kind == "float":
        as_float(value, name)
    elif kind == "int" and not isinstance(value, torch.dtype):  # a ScalarType is an int to the schema
        as_int64(value, name)
    elif kind == "bool":
        as_bool(value, name)
    elif kind == "str" and not isinstance(value, str):
        raise wrong_type(value, name, "a str")
    elif kind in _EXPECTED and not isinstance(value, Sequence):
        raise wrong_type(value, name, _EXPECTED[kind])


def _explain(op: Any, args: tuple[Any, ...], error: Exception) -> NoReturn:
    """Raises what the other build would have raised.  torch's dispatcher turns every error into a RuntimeError."""
    arguments = op._schema.arguments
    if len(args) != len(arguments):
        raise TypeError(f"expected {len(arguments)} arguments, got {len(args)}") from None
    for argument, value in zip(arguments, args, strict=True):
        kind = str(argument.type)
        if not kind.startswith("Optional") or value is not None:
            _check_argument(value, argument.name, kind.removeprefix("Optional[").removesuffix("]"))
    name, _, words = str(error).partition(": ")
    if name == "ValueError":
        raise ValueError(words) from None
    raise error


def _kernel(name: str, check: Callable[..., None], written: tuple[int, ...] = ()) -> tuple[Any, Callable[..., Any]]:
    """The op, and what autograd does for it: check, run the kernel, and mark what was written."""
    op = getattr(torch.ops.fedasd, name).default

    def run(*args: Any) -> Any:
        try:
            check(*args)
            with _below_autograd():
                result = op(*args)
        except (AttributeError, IndexError, RuntimeError, TypeError) as error:
            _explain(op, args, error)
        for place in written:
            if args[place] is not None and not args[place].is_inference():
                torch.autograd.graph.increment_version(args[place])
        return result

    return op, run


def _check_objective(*args: Any) -> None:
    student, teacher, prior, normalizer = args[0], args[1], args[3], args[8]
    if teacher is not None and teacher.requires_grad:
        check_undifferentiated(teacher, "teacher_logits")
    if prior is not None and prior.requires_grad:
        check_undifferentiated(prior, "label_prior")
    if normalizer is not None and normalizer.requires_grad:
        check_undifferentiated(normalizer, "alpha_normalizer")
    if forward_ad._current_level >= 0 and forward_ad.unpack_dual(student).tangent is not None:
        raise NotImplementedError(_NO_FORWARD_MODE)


def _check_cache(logits: Tensor, _: Tensor, prior: Tensor, *__: Any) -> None:
    check_undifferentiated(logits, "teacher_logits")
    check_undifferentiated(prior, "label_prior")


def _check_update(*names: str) -> Callable[..., None]:
    """The ops stand where an optimizer does: a gradient that would be lost is refused."""

    def check(*args: Any) -> None:
        if torch.is_grad_enabled():
            for tensor, name in zip(args, names, strict=False):
                require(
                    tensor is None or not tensor.requires_grad,
                    f"{name} requires grad, but the client update has no derivative; call it under torch.no_grad(), "
                    f"or pass {name}.detach()",
                )

    return check


def _check_accumulation(total: Tensor, values: Tensor, _: Sequence[float]) -> None:
    _check_update("values")(values)


_loss_op, _loss_and_grad = _kernel("asd_loss_and_grad", _check_objective)
_objective_op, _value = _kernel("asd_objective", _check_objective)
_, _cache = _kernel("teacher_cache", _check_cache)
_, local_step_ = _kernel(
    "local_step_", _check_update("w", "g", "velocity", "linear", "decay", "lr", "norms"), written=(0, 2, 6)
)
_, ascend_ = _kernel("ascend_", _check_update("w", "g", "saved"), written=(0, 2))
_, accumulate_ = _kernel("accumulate_", _check_accumulation, written=(0,))
_train_op, _train = _kernel("train_clients", lambda *_: None)


class _Product(torch.autograd.Function):
    """upstream times the gradient, whose own derivative is not available."""

    generate_vmap_rule = True

    @staticmethod
    def forward(student: Tensor, gradient: Tensor, upstream: Tensor) -> Tensor:
        return _scaled(gradient, upstream)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> NoReturn:
        raise RuntimeError(_NO_SECOND_DERIVATIVE)


def _scaled(gradient: Tensor, upstream: Tensor) -> Tensor:
    factor = upstream if upstream.dim() == 0 else upstream[:, None, None]  # [K] against [K, B, C]
    return (gradient * factor).to(gradient.dtype)


def _gradients(ctx: Any, upstream: Tensor | None) -> tuple[Tensor | None, ...]:
    """Of all arguments; the student's logits are the first."""
    product = None
    if upstream is not None:
        gradient, student = ctx.saved_tensors
        scale = torch.is_grad_enabled()  # create_graph
        product = _Product.apply(student, gradient, upstream) if scale else _scaled(gradient, upstream)
    return (product, *[None] * (len(ctx.needs_input_grad) - 1))


class _Objective(torch.autograd.Function):
    """The loss, whose gradient the forward pass has already computed."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        loss, gradient = _loss_and_grad(*args)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(gradient, args[0])
        return loss  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        return _gradients(ctx, upstream)


class _Transformed(torch.autograd.Function):
    """The same in the form that torch.func takes: slower to call."""

    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, Tensor]:
        return _loss_op(*args)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[1], inputs[0])

    @staticmethod
    def backward(ctx: Any, upstream: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
        return _gradients(ctx, upstream)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> NoReturn:
        raise NotImplementedError(_NO_FORWARD_MODE)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        return vmap_rule(_Transformed.apply, TENSORS)(info, in_dims, *args)


def asd_objective(*args: Any) -> Tensor:
    if _transforms_active():
        return _Transformed.apply(*args)[0]  # type: ignore[no-any-return]
    if torch.is_grad_enabled() and args and isinstance(args[0], Tensor) and args[0].requires_grad:
        return _Objective.apply(*args)  # type: ignore[no-any-return]
    return _value(*args)  # type: ignore[no-any-return]


def asd_loss_and_grad(*args: Any) -> tuple[Tensor, Tensor]:
    return (_loss_op if _transforms_active() else _loss_and_grad)(*args)  # type: ignore[no-any-return]


def train_clients(*args: Any) -> tuple[Tensor, ...]:
    try:
        return _train(*args)  # type: ignore[no-any-return]
    except RuntimeError:
        _stable.raise_pending()
        raise


def _signed(key: int) -> int:
    """The same 64 bits."""
    return key - 2**64 if key >= 2**63 else key


def epoch_orders(key: int, round: int, first_epoch: int, *numbers: Any) -> Any:
    tensors = map(torch.from_numpy, numbers)
    return torch.ops.fedasd.epoch_orders.default(_signed(key), round, first_epoch, *tensors).numpy()


def synthetic_samples(
    key: int, distribution: str, value: float, modes: int, noise: float, *rest: Any
) -> tuple[Any, Any]:
    """rest: centres, clients, sizes, with_inputs."""
    tensors = map(torch.from_numpy, rest[:3])
    inputs, labels = torch.ops.fedasd.synthetic_samples.default(
        _signed(key), distribution, value, modes, noise, *tensors, rest[3]
    )
    return inputs.numpy(), labels.numpy()


def philox_words(key: int, counters: Any) -> Any:
    return torch.ops.fedasd.philox_words.default(_signed(key), torch.from_numpy(counters)).numpy()


_library = torch.library.Library("fedasd", "IMPL")
for _name, _function in {
    "asd_objective": asd_objective,
    "asd_loss_and_grad": _loss_and_grad,
    "teacher_cache": _cache,
    "local_step_": local_step_,
    "ascend_": ascend_,
    "accumulate_": accumulate_,
}.items():
    _library.impl(_name, _function, "Autograd")

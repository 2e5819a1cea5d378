"""Draws calls of the public loss functions: a valid one, which is then spoilt in most cases."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import fedasd_fast as fa

FLOATS = (torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16)
CLASSES = (1, 2, 3, 10, 33, 120)
LOSSES = ("asd_loss", "asd_objective", "asd_loss_and_grad", "ASDLoss")
FUNCTIONS = (*LOSSES, *LOSSES, "from_logits", "build", "label_prior")


@dataclass
class Call:
    function: str
    arguments: dict[str, Any]
    spoilt: list[str] = field(default_factory=list)  # what was done to a valid call

    def __str__(self) -> str:
        shown = {name: _describe(value) for name, value in self.arguments.items()}
        return f"{self.function}({', '.join(f'{k}={v}' for k, v in shown.items())}) spoilt: {self.spoilt}"


class Reference(nn.Module):
    """A teacher with a weight, so that build() sees a device and a mode."""

    def __init__(self, features: int, classes: int, result: Callable[[Tensor], Any] = lambda logits: logits) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(features * 1000 + classes)
        self.weight = nn.Parameter(torch.randn(features, classes, generator=generator))
        self.result = result

    def forward(self, x: Tensor) -> Any:
        features = x.flatten(1) if x.dim() > 1 else x.unsqueeze(1)
        if features.shape[1] != len(self.weight):  # what a model makes of such inputs is not our matter
            features = x.new_zeros(len(x), len(self.weight))
        return self.result(features.to(self.weight.dtype) @ self.weight)


def draw(seed: int, index: int) -> Call:
    """The same call for the same numbers, whatever came before."""
    rng = random.Random(f"{seed}:{index}")
    generator = torch.Generator().manual_seed(rng.getrandbits(48))
    call = _valid(rng, generator)
    for _ in range(rng.choice((0, 0, 1, 1, 1, 2))):
        _spoil(call, rng)
    return call


def _valid(rng: random.Random, generator: torch.Generator) -> Call:
    function = rng.choice(FUNCTIONS)
    clients = rng.choice(((), (), (1,), (3,)))
    rows, classes = rng.choice((0, 1, 2, 5, 19)), rng.choice(CLASSES)
    scale = rng.choice((0.0, 1.0, 3.0, 30.0, 1e4))
    shape = (*clients, rows, classes)

    def logits() -> Tensor:
        # A half type holds no more than 65504.
        x = torch.randn(shape, generator=generator, dtype=torch.float64) * scale
        return x.clamp(-6e4, 6e4).to(rng.choice(FLOATS))

    targets = torch.randint(0, classes, shape[:-1], generator=generator)
    ignore_index = rng.choice((-100, -100, -100, -1, 0))
    targets[torch.rand(targets.shape, generator=generator) < rng.choice((0.0, 0.3, 1.0))] = ignore_index
    prior = torch.rand((*clients, classes), generator=generator, dtype=torch.float64) + 0.01
    prior = (prior / prior.sum(-1, keepdim=True)).to(rng.choice((torch.float32, torch.float64, torch.bfloat16)))
    if rng.random() < 0.3:
        targets = targets.int()
    options: dict[str, Any] = {}
    for name, values in (
        ("temperature", (0.1, 1.0, 2.0, 3, 50.0)),
        ("entropy_temperature", (0.5, 1, 2.0, 7.0)),
        ("entropy_power", (0.0, 1.0, -1.0, 2)),
        ("prior_power", (0.0, 1.0, 0.5, 2)),
        ("not_true", (False, True)),
    ):
        if rng.random() < 0.4:
            options[name] = rng.choice(values)
    if ignore_index != -100:
        options["ignore_index"] = ignore_index
    stacked = {"client_dim": 0} if clients else {}
    if function == "label_prior":
        if not (targets != ignore_index).any():
            targets = torch.zeros((*clients, 2), dtype=torch.long)
            options.pop("ignore_index", None)
        known = {"ignore_index": options["ignore_index"]} if "ignore_index" in options else {}
        return Call(function, {"targets": targets, "num_classes": classes, **known, **stacked})
    if function in ("from_logits", "build"):
        options.update(dtype=rng.choice(FLOATS), log_rows=rng.random() < 0.3)
        arguments = {"targets": targets, "label_prior": prior, **options, **stacked}
        if function == "from_logits":
            return Call(function, {"teacher_logits": logits(), **arguments})
        inputs = torch.randn((*shape[:-1], 2, 2), generator=generator)
        return Call(function, {"model": Reference(4, classes), "inputs": inputs, **arguments, "batch_size": 3})

    student, teacher = logits(), logits()
    given: Any = teacher
    kind = rng.choice(("raw", "raw", "cache", "log cache", "none"))
    weight = rng.choice((0.0, 1.0, 30.0))
    if kind in ("cache", "log cache"):
        storage = rng.choice((torch.float32, torch.float64, torch.float16))
        stored = fa.TeacherCache.from_logits(
            teacher, targets, prior, **options, **stacked, dtype=storage, log_rows=kind == "log cache"
        )
        given = stored[torch.arange(rows).expand(*clients, rows)]
        prior = None if rng.random() < 0.5 else prior
    elif kind == "none" and function != "asd_loss":
        given, prior, weight = None, None, 0.0
    options["divergence"] = rng.choice(("kl", "kl", "reverse_kl", "js"))
    if rng.random() < 0.3:
        options["weighting"] = rng.choice(("adaptive", "uniform"))
        prior = None if options["weighting"] == "uniform" and rng.random() < 0.5 else prior
    if options.get("weighting") != "uniform" and rng.random() < 0.2:
        options["alpha_normalizer"] = rng.choice((0.5, 2, torch.tensor(3.0), torch.full(clients, 7.0)))
    if function != "asd_loss_and_grad" and rng.random() < 0.2:
        options["reduction"] = rng.choice(("mean", "none"))
    if function != "asd_loss":
        options["asd_weight"] = weight
        if rng.random() < 0.2:
            options["label_smoothing"] = rng.choice((0, 0.1, 1.0))
        if rng.random() < 0.2:
            options["class_weights"] = torch.rand(classes, generator=generator) + 0.1
        if rng.random() < 0.4:
            options["ce_weight"] = rng.choice((0.0, 1.0, 0.5))
    if rng.random() < 0.4:
        options["implementation"] = rng.choice(("auto", "fused", "reference"))
    if rng.random() < 0.3:
        student = _layout(student, rng)
    if function != "asd_loss_and_grad" and rng.random() < 0.5:
        student = student.requires_grad_()
    options.update(stacked)
    return Call(
        function, dict(student_logits=student, teacher_logits=given, targets=targets, label_prior=prior, **options)
    )


def _layout(x: Tensor, rng: random.Random) -> Tensor:
    """The same values with other strides."""
    if rng.random() < 0.5:
        return x.mT.contiguous().mT
    return torch.stack([x, x], -1)[..., 1]


def _freed(x: Tensor) -> Tensor:
    copy = x.detach().clone()
    copy.untyped_storage().resize_(0)
    return copy


TENSOR_CHANGES: dict[str, Callable[[Tensor], Any]] = {
    "list": lambda x: x.tolist() if x.layout == torch.strided and not x.is_meta else [],
    "numpy": lambda x: np.zeros(tuple(x.shape)),
    "str": lambda x: "logits",
    "missing": lambda x: None,
    "number": lambda x: 1.0,
    "int64": lambda x: x.detach().nan_to_num(0, 0, 0).to(torch.int64),
    "float16": lambda x: x.to(torch.float16),
    "bool": lambda x: x.detach() > 0,
    "complex": lambda x: x.to(torch.complex64),
    "uint8": lambda x: x.detach().nan_to_num(0, 0, 0).to(torch.uint8),
    "scalar": lambda x: x.new_zeros(()),
    "one dimension less": lambda x: x[0] if x.dim() and len(x) else x.new_zeros(()),
    "one dimension more": lambda x: x.unsqueeze(0),
    "four dimensions": lambda x: x.new_zeros(1, 1, 2, 3),
    "last row cut": lambda x: x[..., :-1] if x.dim() else x,
    "empty": lambda x: x.new_zeros(0),
    "meta": lambda x: x.to("meta"),
    "sparse": lambda x: x.to_sparse() if x.dim() else x,
    "freed": _freed,
    "requires grad": lambda x: x.detach().clone().requires_grad_() if x.is_floating_point() else x,
    "expanded without end": lambda x: x.new_zeros(1, 1).expand(2**62, 1),
    "expanded beyond memory": lambda x: x.new_zeros(1, 1).expand(2**44, 1),
}
VALUES = (math.nan, math.inf, -math.inf, 1e30, -1e37, 3e37, 0.0)
NUMBERS = (
    None, "2.0", math.nan, math.inf, -1.0, 0, -0.0, 1e-30, 1e30, [2.0], torch.tensor(2.0), torch.ones(2), 10**400, 1j,
    True, np.float64(1.5), np.ones(3), b"2", {},
)  # fmt: skip
INTEGERS = (
    None,
    "2",
    2.5,
    0,
    -3,
    2**40,
    2**63,
    -(2**70),
    [1],
    torch.tensor(3),
    torch.ones(2, dtype=torch.long),
    True,
    1j,
)
FLAGS = (1, None, torch.ones(2), np.ones(2), [])
WORDS = ("", "KL", "kl ", None, 1, b"kl", ["kl"], torch.ones(1), "uniform", "kl", "fused")
DTYPES = (torch.int64, torch.complex64, "float32", None, np.float32, torch.float8_e4m3fn, torch.float64)
ROWS = (None, "all", [0, 1.5], [[0]], [], torch.tensor([True]), slice(None, None, -1), 7, {}, slice(0, 2))
KEYWORDS = {
    **dict.fromkeys(("temperature", "entropy_temperature", "entropy_power", "prior_power"), NUMBERS),
    **dict.fromkeys(("asd_weight", "ce_weight", "alpha_normalizer", "label_smoothing"), NUMBERS),
    **dict.fromkeys(("ignore_index", "batch_size", "num_classes", "client_dim"), INTEGERS),
    **dict.fromkeys(("weighting", "divergence", "implementation", "reduction"), WORDS),
    "not_true": FLAGS, "log_rows": FLAGS, "dtype": DTYPES,
}  # fmt: skip
TAKES = {
    **dict.fromkeys(LOSSES, {*KEYWORDS} - {"batch_size", "num_classes", "log_rows", "dtype"}),
    "from_logits": {"temperature", "entropy_temperature", "entropy_power", "prior_power", "ignore_index", "not_true",
                    "log_rows", "dtype", "client_dim"},
    "build": {"temperature", "entropy_temperature", "entropy_power", "prior_power", "ignore_index", "not_true",
              "log_rows", "dtype", "batch_size", "client_dim"},
    "label_prior": {"ignore_index", "num_classes", "client_dim"},
}  # fmt: skip


def _spoil(call: Call, rng: random.Random) -> None:
    arguments = call.arguments
    tensors = [name for name, value in arguments.items() if name not in KEYWORDS and _intact(value)]
    way = rng.choice(("tensor", "tensor", "keyword", "keyword", "values", "values", "labels", "signature", "other"))
    if way == "tensor" and tensors:
        name, change = rng.choice(tensors), rng.choice(list(TENSOR_CHANGES))
        try:
            arguments[name] = TENSOR_CHANGES[change](arguments[name])
        except (RuntimeError, TypeError, NotImplementedError):  # the tensor was spoilt before and cannot be changed so
            return
        call.spoilt.append(f"{name}: {change}")
    elif way == "keyword":
        name = rng.choice(sorted(TAKES[call.function]))
        arguments[name] = rng.choice(KEYWORDS[name])
        call.spoilt.append(f"{name} = {_describe(arguments[name])}")
    elif way == "values":
        floats = [
            name
            for name in tensors
            if name != "class_weights" and _writable(arguments[name]) and arguments[name].is_floating_point()
        ]
        if floats:
            name, value = rng.choice(floats), rng.choice(VALUES)
            changed = arguments[name].detach().clone(memory_format=torch.contiguous_format)
            changed.view(-1)[rng.randrange(changed.numel())] = value
            arguments[name] = changed.requires_grad_(arguments[name].requires_grad)
            call.spoilt.append(f"{name} holds {value}")
    elif way == "labels" and _writable(arguments.get("targets")):
        targets = arguments["targets"].clone(memory_format=torch.contiguous_format)
        value = rng.choice((-1, 10**6, 2**31 - 1, -(2**31), 1, 119))
        if not targets.is_floating_point() and targets.dtype in (torch.int32, torch.int64):
            targets.view(-1)[rng.randrange(targets.numel())] = value
            arguments["targets"] = targets
            call.spoilt.append(f"label {value}")
    elif way == "signature":
        if rng.random() < 0.5:
            arguments[rng.choice(("tau", "gamma", "alpha"))] = 1.0
            call.spoilt.append("unknown keyword")
        else:
            arguments.pop(rng.choice(list(arguments)))
            call.spoilt.append("argument left out")
    elif way == "other":
        _spoil_teacher(call, rng)


def _spoil_teacher(call: Call, rng: random.Random) -> None:
    """The model of build(), or the cache and its rows."""
    arguments = call.arguments
    if call.function == "build":
        models = (
            None, "resnet", lambda x: x, Reference(4, 3, lambda x: (x, x)), Reference(4, 3, lambda x: x.sum()),
            Reference(4, 3, lambda x: x.argmax(-1)), Reference(4, 3, lambda x: x.long()), Reference(4, 3).to("meta"),
            Reference(4, 3, lambda x: x * math.nan), Reference(4, 3, lambda x: x[:1]), Reference(4, 3),
        )  # fmt: skip
        arguments["model"] = rng.choice(models)
        call.spoilt.append("model")
        return
    teacher = arguments.get("teacher_logits")
    cache = getattr(teacher, "cache", None)
    if cache is None:
        return
    choice = rng.randrange(4)
    if choice == 0:
        arguments["teacher_logits"] = cache
        call.spoilt.append("the cache in place of cache[rows]")
    elif choice == 1:
        # The refusal may come from cache[rows] itself: the call makes it.
        rows = rng.choice(ROWS)
        arguments["teacher_logits"] = ("rows", cache, rows)
        call.spoilt.append(f"rows = {rows}")
    elif choice == 2:
        name = rng.choice(("rows", "constant", "log_weight", "targets"))
        getattr(cache, name).untyped_storage().resize_(0)
        call.spoilt.append(f"cache.{name} freed")
    elif teacher.rows.numel():
        rows = teacher.rows.clone(memory_format=torch.contiguous_format)
        rows.view(-1)[0] = rng.choice((-1, 10**9, 2**62, 1))
        arguments["teacher_logits"] = cache[rows]
        call.spoilt.append("another row number")


def _intact(x: Any) -> bool:
    """Whether torch can still compute with it."""
    if not isinstance(x, Tensor) or x.layout != torch.strided or x.numel() > 10**6:
        return False
    return x.numel() == 0 or x.untyped_storage().nbytes() > 0


def _writable(x: Any) -> bool:
    return _intact(x) and not x.is_meta and x.numel() > 0


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"Tensor({tuple(value.shape)}, {value.dtype}, {value.device})"
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."

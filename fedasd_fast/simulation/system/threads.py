"""How many threads a local step is worth.

Waking a second thread costs some ten microseconds for every operation, and when cores are busy far more: a small model
is many times faster on one.  The choice is a function of the work in a step, not of a measurement, so that the same
settings give the same bits on the same machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ...common.schema import ConfigError
from ..client.flat_model import FlatModel

_WORTH_IT = 1e8  # floating point operations in a step: some milliseconds of one core


def step_flops(model: FlatModel, input_shape: tuple[int, ...], num_classes: int, batch_size: int) -> int:
    """Of the linear and convolutional layers in one local step: forward, and backward which costs twice as much.

    Counted in a pass that also shows, before anything is trained, whether model and data fit together.
    """
    name, shape = type(model.module).__name__, (batch_size, *input_shape)
    x = torch.zeros(shape, dtype=model.vector.dtype, device=model.vector.device)
    total = 0

    def count(layer: nn.Module, _: object, output: Tensor) -> None:
        nonlocal total
        weight = layer.get_parameter("weight")  # [out, in, ..]: each output takes a product for every entry of its row
        total += 2 * output.numel() * (weight.numel() // weight.shape[0])

    layers = [m for m in model.module.modules() if isinstance(m, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d))]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    try:
        with torch.no_grad():
            logits = model.module.eval()(x)
    except Exception as error:
        raise ConfigError(f"the model {name} does not take inputs {list(shape)}: {error}") from error
    finally:
        for hook in hooks:
            hook.remove()
    found = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if found != [batch_size, num_classes]:
        raise ConfigError(f"the model {name} returned {found}; expected logits {[batch_size, num_classes]}")
    return 3 * total


def worth_threads(flops: int) -> bool:
    return flops >= _WORTH_IT


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def choose(wanted: int, flops: int) -> int:
    """`wanted`, or for 0 as many as a step of `flops` makes use of."""
    return wanted or (torch.get_num_threads() if worth_threads(flops) else 1)


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)

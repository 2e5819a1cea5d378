"""Floating-point operations of a local step."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...common.schema import ConfigError
from ...data.federated import FederatedData
from .flat_model import FlatModel


def step_flops(model: FlatModel, data: FederatedData, batch_size: int) -> int:
    """Of the linear and convolutional layers in one local step: forward, and backward which costs twice as much.

    Counted in a pass that also shows, before anything is trained, whether model and data fit together.  By hooks:
    torch's own counter imports its compiler, which costs every process 70 MB and most of a second.
    """
    name, x = type(model.module).__name__, data.blank(batch_size, model.vector)
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
        hint = "" if x.is_floating_point() else "; if these are features, not token ids, make them floats"
        raise ConfigError(f"the model {name} does not take {_kind(x)} {list(x.shape)}: {error}{hint}") from error
    finally:
        for hook in hooks:
            hook.remove()
    found = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    positions = [] if data.positions is None else [data.positions]
    if found != (expected := [batch_size, *positions, data.num_classes]):
        raise ConfigError(f"the model {name} returned {found}; expected logits {expected}")
    return 3 * total


def _kind(inputs: Tensor) -> str:
    return "inputs" if inputs.is_floating_point() else "token ids"

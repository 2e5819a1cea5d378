"""Floating-point operations of a local step."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...common.schema import ConfigError
from .flat_model import FlatModel


def step_flops(model: FlatModel, input_shape: tuple[int, ...], num_classes: int, batch_size: int) -> int:
    """Of the linear and convolutional layers in one local step: forward, and backward which costs twice as much.

    Counted in a pass that also shows, before anything is trained, whether model and data fit together.  By hooks:
    torch's own counter imports its compiler, which costs every process 70 MB and most of a second.
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

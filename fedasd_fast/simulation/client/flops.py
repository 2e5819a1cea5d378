"""Floating-point operations of a local step."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ...common.schema import ConfigError
from .flat_model import FlatModel


def step_flops(model: FlatModel, input_shape: tuple[int, ...], num_classes: int, batch_size: int) -> int:
    """Of the matrix products and convolutions in one local step: forward, and backward which costs twice as much.

    Counted in a pass that also shows, before anything is trained, whether model and data fit together.
    """
    name, shape = type(model.module).__name__, (batch_size, *input_shape)
    x = torch.zeros(shape, dtype=model.vector.dtype, device=model.vector.device)
    counter = FlopCounterMode(display=False)
    try:
        with torch.no_grad(), counter:
            logits = model.module.eval()(x)
    except Exception as error:
        raise ConfigError(f"the model {name} does not take inputs {list(shape)}: {error}") from error
    found = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if found != [batch_size, num_classes]:
        raise ConfigError(f"the model {name} returned {found}; expected logits {[batch_size, num_classes]}")
    return 3 * counter.get_total_flops()

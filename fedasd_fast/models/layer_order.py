"""An order of layers that gives the same numbers sooner."""

from __future__ import annotations

from torch import nn


def pool_before_relu(model: nn.Module) -> None:
    """In chains of layers, ReLU behind max pooling instead of in front of it.

    Both keep the order of numbers, so max(relu(x)) = relu(max(x)), to the bit, and gradients take the same path; but
    there is less to do for ReLU, a quarter for windows of 2 x 2.  Names of parameters stay.  Models that say themselves
    how their layers are called are left alone.
    """
    if type(model) is not nn.Sequential:
        return
    for layer in model:
        pool_before_relu(layer)
    for i in range(len(model) - 1):
        if _plain(model[i], nn.ReLU) and _plain(model[i + 1], nn.MaxPool2d) and not model[i + 1].return_indices:
            model[i], model[i + 1] = model[i + 1], model[i]


def _plain(layer: nn.Module, kind: type[nn.Module]) -> bool:
    return type(layer) is kind and not (layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks)

"""Swaps ReLU and max pooling in sequential models: the same results in less time."""

from __future__ import annotations

from torch import nn


def pool_before_relu(model: nn.Module) -> None:
    """In nn.Sequential, moves ReLU from before max pooling to after it.

    Both are monotonic, so max(relu(x)) = relu(max(x)), to the bit, and gradients take the same path; but ReLU then has
    fewer elements, a quarter for windows of 2 x 2.  Parameter names do not change.  Models with a forward method of
    their own are left alone.
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

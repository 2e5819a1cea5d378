"""Which networks the whole-client op can train: chains of linear layers, and how they are described to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import nn

# As in csrc/chain/problem.h.
_NONE, _RELU, _TANH, _GELU, _GELU_TANH, _SILU = range(6)


@dataclass
class _Layer:
    inputs: int
    outputs: int
    weight: int  # where it begins in the flat vector
    bias: int  # -1: none
    activation: int = _NONE


@dataclass
class ChainLayers:
    layers: list[_Layer] = field(default_factory=list)

    def numbers(self) -> list[int]:
        """Five for each layer, as the op wants them."""
        return [
            n
            for layer in self.layers
            for n in (layer.inputs, layer.outputs, layer.weight, layer.bias, layer.activation)
        ]


def chain_layers(module: nn.Module, offsets: Mapping[str, int], input_shape: tuple[int, ...]) -> ChainLayers | str:
    """The network's layers, or why it is no chain.  `offsets`: where each trained parameter begins in the vector."""
    chain, flat = ChainLayers(), len(input_shape) == 1
    for name, layer in module.named_modules(remove_duplicate=False):
        kind = type(layer)  # a subclass may do anything
        if layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks:
            return f"layer {name or kind.__name__} has hooks"
        if kind is nn.Linear:
            assert isinstance(layer, nn.Linear)
            own = {part: f"{name}.{part}" if name else part for part, _ in layer.named_parameters()}
            if any(parameter not in offsets for parameter in own.values()):
                return f"parameters of layer {name} are frozen, or shared with another layer"
            bias = offsets[own["bias"]] if "bias" in own else -1
            chain.layers.append(_Layer(layer.in_features, layer.out_features, offsets[own["weight"]], bias))
        elif kind in (nn.Sequential, nn.Identity):
            continue
        elif isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) == (1, -1) and not chain.layers:
            flat = True
        elif (activation := _activation(layer)) is not None and chain.layers and not chain.layers[-1].activation:
            chain.layers[-1].activation = activation
        else:
            return f"layer {name or kind.__name__} ({kind.__name__}) is not one of a chain of linear layers"
    if not chain.layers:
        return "it has no linear layer"
    if not flat:
        return f"its inputs have the shape {input_shape}, and nothing flattens them"
    widths = [math.prod(input_shape), *(layer.outputs for layer in chain.layers)]
    if any(layer.inputs != width for layer, width in zip(chain.layers, widths, strict=False)):
        return "its layers do not fit each other"  # the first step will say it as torch does
    return chain


def _activation(layer: nn.Module) -> int | None:
    kind = type(layer)
    if isinstance(layer, nn.GELU) and kind is nn.GELU:
        return _GELU_TANH if layer.approximate == "tanh" else _GELU
    return {nn.ReLU: _RELU, nn.Tanh: _TANH, nn.SiLU: _SILU}.get(kind)

"""A chain of linear layers and activations with K sets of parameters, forwards and backwards by hand.

A step of a small network is over in microseconds: autograd's bookkeeping then costs as much as the arithmetic.  Here a
layer is one batched matrix product forwards and two backwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

# Layers that act on each number alone and have no parameters: what they do to [B, ..] they do to [K, B, ..].
_ELEMENTWISE = (nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.ELU, nn.LeakyReLU)


class Layer(Protocol):
    """`forward` keeps what `backward` needs; `backward` may overwrite the gradient that it is given."""

    def forward(self, x: Tensor) -> Tensor: ...

    def backward(self, gradient: Tensor) -> Tensor: ...


class LinearChain:
    def __init__(self, layers: list[Layer], first: StackedLinear) -> None:
        """`first` is the first of the layers that has parameters."""
        self._layers, self._first = layers, first
        self._behind = layers[: layers.index(first) : -1]  # from the last one on

    def forward(self, inputs: Tensor) -> Tensor:
        """[K, B, ..] -> [K, B, C]"""
        x = inputs
        with torch.no_grad():
            for layer in self._layers:
                x = layer.forward(x)
        return x

    def backward(self, gradient: Tensor) -> None:
        """From the gradient of the last output, which is overwritten, to those of the parameters."""
        with torch.no_grad():
            for layer in self._behind:
                gradient = layer.backward(gradient)
            self._first.differentiate(gradient)  # the gradient of its input is not needed


class StackedLinear(Layer):
    def __init__(self, parameters: list[Tensor], gradients: list[Tensor]) -> None:
        """Weight [K, out, in] and perhaps bias [K, out]."""
        self._weight, *bias = parameters
        self._transposed = self._weight.transpose(1, 2)
        self._bias = bias[0].unsqueeze(1) if bias else None
        self._weight_gradient, *self._bias_gradient = gradients
        self._x: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self._x = x
        if self._bias is None:
            return torch.bmm(x, self._transposed)
        return torch.baddbmm(self._bias, x, self._transposed)

    def backward(self, gradient: Tensor) -> Tensor:
        self.differentiate(gradient)
        return torch.bmm(gradient, self._weight)

    def differentiate(self, gradient: Tensor) -> None:
        # With out= the rows of all parameters' matrix would be filled one client after the other, which takes longer.
        self._weight_gradient.copy_(torch.bmm(gradient.transpose(1, 2), self._x))
        for bias in self._bias_gradient:
            torch.sum(gradient, 1, dtype=bias.dtype, out=bias)


class HalfStackedLinear(StackedLinear):
    """With products in half precision; its parameters and their gradients stay as they are."""

    def __init__(self, parameters: list[Tensor], gradients: list[Tensor], half: torch.dtype) -> None:
        super().__init__(parameters, gradients)
        self._parameters, self._half = parameters, half

    def forward(self, x: Tensor) -> Tensor:
        """With copies of the parameters as they are in this step."""
        self._weight, *bias = (part.to(self._half) for part in self._parameters)
        self._transposed, self._bias = self._weight.transpose(1, 2), bias[0].unsqueeze(1) if bias else None
        return super().forward(x.to(self._half))


class StackedElementwise(Layer):
    """Its derivative is autograd's."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self._function = function
        self._x: Tensor
        self._y: Tensor

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            self._x = x.detach().requires_grad_()
            self._y = self._function(self._x)
        return self._y.detach()

    def backward(self, gradient: Tensor) -> Tensor:
        return torch.autograd.grad(self._y, self._x, gradient)[0]


class StackedReLU(Layer):
    def __init__(self) -> None:
        self._y: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self._y = torch.relu(x)
        return self._y

    def backward(self, gradient: Tensor) -> Tensor:
        threshold_backward: Callable[..., Tensor] = torch.ops.aten.threshold_backward.grad_input
        return threshold_backward(gradient, self._y, 0, grad_input=gradient)


class StackedFlatten(Layer):
    def __init__(self) -> None:
        self._shape: torch.Size

    def forward(self, x: Tensor) -> Tensor:
        self._shape = x.shape
        return x.flatten(2)

    def backward(self, gradient: Tensor) -> Tensor:
        return gradient.view(self._shape)


def linear_chain(
    module: nn.Module,
    parameters: Mapping[str, Tensor],
    gradients: Mapping[str, Tensor],
    half: torch.dtype | None = None,  # what products are computed in, in place of the parameters' type
) -> LinearChain | None:
    """The network with parameters [K, ..] and their gradients, by name; None if it is no such chain."""
    layers: list[Layer] = []
    first: StackedLinear | None = None
    for name, layer in module.named_modules(remove_duplicate=False):
        kind = type(layer)  # a subclass may do anything
        if kind is nn.Linear:
            own = [f"{name}.{part}" if name else part for part, _ in layer.named_parameters()]
            if not all(part in parameters for part in own):  # frozen, or another layer's too
                return None
            views = [parameters[part] for part in own], [gradients[part] for part in own]
            linear = HalfStackedLinear(*views, half) if half else StackedLinear(*views)
            layers.append(linear)
            first = first or linear
        elif kind is nn.ReLU:
            layers.append(StackedReLU())
        elif kind in _ELEMENTWISE and not getattr(layer, "inplace", False):
            layers.append(StackedElementwise(layer))
        elif isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) == (1, -1) and first is None:
            layers.append(
                StackedFlatten()
            )  # behind a linear layer it would mean that inputs of that have more dimensions
        elif kind not in (nn.Sequential, nn.Identity):
            return None
    return LinearChain(layers, first) if first else None

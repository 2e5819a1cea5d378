"""One network with K sets of parameters, evaluated at once: K clients for the price of a few batched operations."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from .flat_model import FlatModel
from .linear_chain import chain_of


class Network(Protocol):
    """What a StackedModel is made of."""

    def forward(self, inputs: Tensor) -> Tensor:
        """[K, B, ..] -> logits [K, B, C], outside of any autograd graph."""

    def backward(self, gradient: Tensor) -> None:
        """From the gradient of the last logits, which may be overwritten, to those of the parameters."""


class StackedModel:
    """Parameters and gradients of K clients as rows of two matrices; the network itself is shared."""

    def __init__(self, template: FlatModel, vectors: Tensor, gradients: Tensor) -> None:
        """The network of the template, with parameters and gradients [K, P]."""
        self.vectors, self.gradients = vectors, gradients
        parts = template.views(vectors), template.views(gradients)
        self.network: Network = chain_of(template.module, *parts) or Vmapped(template.module, *parts)

    def __len__(self) -> int:
        return len(self.vectors)


class Vmapped:
    """Any network, by torch's own vectorisation."""

    def __init__(self, module: nn.Module, parameters: dict[str, Tensor], gradients: dict[str, Tensor]) -> None:
        self._module = module
        self._parameters = {name: view.requires_grad_() for name, view in parameters.items()}
        self._gradients = list(gradients.values())
        self._logits: Tensor

    def forward(self, inputs: Tensor) -> Tensor:
        self._logits = vmap(self._call)(self._parameters, inputs)
        return self._logits.detach()

    def backward(self, gradient: Tensor) -> None:
        found = torch.autograd.grad(self._logits, list(self._parameters.values()), gradient)
        torch._foreach_copy_(self._gradients, list(found))

    def _call(self, parameters: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return functional_call(self._module, parameters, (inputs,))  # type: ignore[no-any-return]


def why_not(module: nn.Module) -> str | None:
    """Why this network cannot be stacked, or None if it can."""
    names: dict[nn.Module, str] = {}
    for name, layer in module.named_modules(remove_duplicate=False):
        kind = type(layer).__name__
        if isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0:
            return f"layer {name} ({kind}) draws random numbers, which clients must not share"
        if names.setdefault(layer, name) != name and any(True for _ in layer.parameters()):
            # torch.func would leave the clients' parameters in it
            return f"layers {names[layer]} and {name} are one and the same {kind}"
    return None

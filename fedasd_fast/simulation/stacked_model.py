"""One network with K sets of parameters, evaluated at once: K clients for the price of a few batched operations."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from .chain import chain_of
from .flat import FlatModel


class StackedModel:
    """Parameters and gradients of K clients as rows of two matrices; the network itself is shared."""

    def __init__(self, template: FlatModel, clients: int) -> None:
        self.vectors = template.vector.new_empty(clients, len(template))  # [K, P]
        self.gradients = torch.empty_like(self.vectors)  # [K, P]
        parameters, gradients = template.views(self.vectors), template.views(self.gradients)
        chain = chain_of(template.module, parameters, gradients)
        self._network = chain or _Vmapped(template.module, parameters, gradients)

    def __len__(self) -> int:
        return len(self.vectors)

    def forward(self, inputs: Tensor) -> Tensor:
        """[K, B, ..] -> logits [K, B, C]; rows of `vectors` are the clients' parameters."""
        return self._network.forward(inputs)

    def backward(self, gradient: Tensor) -> None:
        """From the gradient of the last logits [K, B, C]; that of each client's parameters is left in `gradients`."""
        self._network.backward(gradient)


class _Vmapped:
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
    for name, layer in module.named_modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0:
            return f"layer {name} ({type(layer).__name__}) draws random numbers, which clients must not share"
    return None

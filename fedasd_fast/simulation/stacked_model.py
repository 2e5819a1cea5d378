"""One network with K sets of parameters, evaluated at once: K clients for the price of a few batched operations."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from .flat import FlatModel

# Layers that act on each sample alone and have no parameters: what they do to [B, ..] they do to [K, B, ..].
_ELEMENTWISE = (nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.ELU, nn.LeakyReLU, nn.Identity)


class StackedModel:
    """Parameters and gradients of K clients as rows of two matrices; the network itself is shared."""

    def __init__(self, template: FlatModel, clients: int) -> None:
        self._module = template.module
        self.vectors = template.vector.new_empty(clients, len(template))  # [K, P]
        self.gradients = torch.empty_like(self.vectors)  # [K, P]
        self._leaves = {name: view.requires_grad_() for name, view in template.views(self.vectors).items()}
        self._gradient_views = list(template.views(self.gradients).values())

    def __len__(self) -> int:
        return len(self.vectors)

    def forward(self, inputs: Tensor) -> Tensor:
        """[K, B, ..] -> logits [K, B, C]; rows of `vectors` are the clients' parameters."""
        if _plain(self._module):
            return _sequential(self._module, "", self._leaves, inputs)
        call: Callable[..., Tensor] = vmap(self._call)
        return call(self._leaves, inputs)

    def backward(self, logits: Tensor, gradient: Tensor) -> None:
        """Leaves the gradient with respect to each client's parameters in `gradients`."""
        found = torch.autograd.grad(logits, list(self._leaves.values()), gradient)
        torch._foreach_copy_(self._gradient_views, list(found))

    def _call(self, parameters: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return functional_call(self._module, parameters, (inputs,))  # type: ignore[no-any-return]


def why_not(module: nn.Module) -> str | None:
    """Why this network cannot be stacked, or None if it can."""
    for name, layer in module.named_modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0:
            return f"layer {name} ({type(layer).__name__}) draws random numbers, which clients must not share"
    return None


def _plain(module: nn.Module) -> bool:
    """A chain of linear layers and activations, which batched matrix products do without the overhead of vmap."""
    if isinstance(module, nn.Sequential):
        return all(_plain(layer) for layer in module)
    return isinstance(module, (nn.Linear, nn.Flatten, *_ELEMENTWISE)) and not _is_odd_flatten(module)


def _is_odd_flatten(module: nn.Module) -> bool:
    return isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) != (1, -1)


def _sequential(module: nn.Module, prefix: str, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
    if isinstance(module, nn.Sequential):
        for name, layer in module.named_children():
            x = _sequential(layer, f"{prefix}{name}.", parameters, x)
        return x
    if isinstance(module, nn.Flatten):
        return x.flatten(2)
    if isinstance(module, nn.Linear):
        weight = parameters[f"{prefix}weight"].transpose(1, 2)  # [K, in, out]
        if module.bias is None:
            return torch.bmm(x, weight)
        return torch.baddbmm(parameters[f"{prefix}bias"].unsqueeze(1), x, weight)
    return module(x)  # type: ignore[no-any-return]

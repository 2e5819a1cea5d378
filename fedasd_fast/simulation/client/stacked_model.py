"""One network with K sets of parameters, evaluated at once: K clients for the price of a few batched operations."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from ...data.federated import FederatedData
from .flat_model import FlatModel, by_position
from .half_products import HalfProducts
from .linear_chain import linear_chain
from .stacked_layers import StackedLayers

# Vectors and samples that are held at once.
_STACK_BYTES = 512 * 2**20
# A step goes over parameters and gradients several times: on a CPU it is fastest while those of all its clients are in
# a cache, unless it has so few of them that it is mostly overhead.  And more than some gain little, but would leave
# nothing to other workers, who share a round by groups.
_CACHE_BYTES = 4 * 2**20
_FEWEST_CLIENTS, _MOST_CLIENTS = 4, 32


class Network(Protocol):
    """A network with K sets of parameters."""

    def forward(self, inputs: Tensor) -> Tensor:
        """[K, B, ..] -> logits [K, B, C], outside of any autograd graph."""

    def backward(self, gradient: Tensor) -> None:
        """From the gradient of the last logits, which may be overwritten, to those of the parameters."""


class StackedModel:
    """Parameters and gradients of K clients as rows of two matrices; the network itself is shared."""

    def __init__(
        self, template: FlatModel, vector: Tensor, gradient: Tensor, layers: StackedLayers | None = None
    ) -> None:
        """The network of the template, with parameters and gradients [K, P]; `layers`: its BatchNorm and dropout."""
        self.vector, self.gradient, self._layout = vector, gradient, template.layout
        self.statistics = vector.new_zeros(len(vector), template.layout.statistics_size)  # [K, S]
        parts = template.views(vector), template.views(gradient)
        chain = linear_chain(template.module, *parts, template.half)
        self.layers = layers
        statistics = template.statistics_views(self.statistics)
        self._network: Network = chain or VmappedNetwork(template.module, *parts, template.half, statistics, layers)
        self.forward, self.backward = self._network.forward, self._network.backward

    @property
    def whole(self) -> Tensor:
        """[K, N]: parameters and running statistics."""
        return self._layout.whole(self.vector, self.statistics)

    def load(self, k: int, parameters: Tensor, statistics: Tensor | None) -> None:
        """Of client k, [P] and [S]."""
        self.vector[k] = parameters
        if statistics is not None:
            self.statistics[k] = statistics

    def __len__(self) -> int:
        return len(self.vector)


class VmappedNetwork:
    """Any network, by torch's own vectorisation."""

    def __init__(
        self,
        module: nn.Module,
        parameters: dict[str, Tensor],
        gradients: dict[str, Tensor],
        half: torch.dtype | None = None,  # what products are computed in, in place of the parameters' type
        statistics: dict[str, Tensor] | None = None,  # [K, ..] running statistics, changed in place
        layers: StackedLayers | None = None,  # BatchNorm and dropout, if it has any
    ) -> None:
        self._module, self._statistics, self._layers = module, statistics or {}, layers
        self._precision = HalfProducts(half) if half else nullcontext()
        self._parameters = {name: view.requires_grad_() for name, view in parameters.items()}
        self._gradients = list(gradients.values())
        self._logits: Tensor

    def forward(self, inputs: Tensor) -> Tensor:
        with self._precision:
            if self._layers is None:
                self._logits = vmap(self._call)(self._parameters, inputs)
            else:
                self._logits = self._layers.forward(self._call, {**self._parameters, **self._statistics}, inputs)
        return self._logits.detach()

    def backward(self, gradient: Tensor) -> None:
        found = torch.autograd.grad(self._logits, list(self._parameters.values()), gradient)
        torch._foreach_copy_(self._gradients, list(found))

    def _call(self, parameters: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return by_position(functional_call(self._module, parameters, (inputs,)))


def why_not_stackable(module: nn.Module) -> str | None:
    """Why this network cannot be stacked, or None if it can."""
    names: dict[nn.Module, str] = {}
    for name, layer in module.named_modules(remove_duplicate=False):
        kind = type(layer).__name__
        if _draws(layer):
            return (
                f"layer {name} ({kind}) draws random numbers, which of stacked clients only nn.Dropout, 1d, 2d and 3d "
                "can"
            )
        if isinstance(layer, nn.RNNBase):
            return f"layer {name} ({kind}) has no vectorised form in torch (char_lstm, of linear layers, has)"
        if names.setdefault(layer, name) != name and any(True for _ in layer.parameters()):
            # torch.func would leave the clients' parameters in it
            return f"layers {names[layer]} and {name} are one and the same {kind}"
    return None


def _draws(layer: nn.Module) -> bool:
    """Other random numbers than those of stacked_layers.py."""
    if isinstance(layer, (nn.AlphaDropout, nn.FeatureAlphaDropout)):
        return layer.p > 0
    return isinstance(layer, nn.RReLU) or (isinstance(layer, nn.MultiheadAttention) and layer.dropout > 0)


def clients_that_fit(model: FlatModel, data: FederatedData, chain: bool = False) -> int:
    """How many clients to train at once; `chain`: by the whole-client op, for which memory is the only limit."""
    width = model.vector.element_size()
    vectors = 6 * len(model)  # parameters, gradient, v, velocity, what an ascent saves, and autograd's
    sample = math.prod(data.input_shape) + (data.positions or 0) * data.num_classes  # with the teacher's rows
    samples = 3 * int(data.sizes.max()) * sample
    fitting = max(1, _STACK_BYTES // (width * (vectors + samples)))
    if model.vector.is_cuda or chain:
        return min(fitting, data.num_clients)
    cached = _CACHE_BYTES // (width * 2 * len(model))
    return min(fitting, max(_FEWEST_CLIENTS, min(cached, _MOST_CLIENTS)))

"""A method's own term of the loss, in plain PyTorch: the batch as the method sees it, with frozen models' outputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ...algorithms import Batch, Client, Method, Outputs, Server
from ...common.schema import ConfigError
from .flat_model import FlatModel
from .hook_errors import HookError, calling


class LocalLoss:
    """Called with inputs, targets and logits of a batch while `listening`, after `begin` with the client whose they
    are."""

    def __init__(self, method: Method, model: FlatModel) -> None:
        self._method, self._model = method, model
        layers = [layer for layer in model.module.modules() if isinstance(layer, nn.Linear)]
        if not layers:
            raise ConfigError(
                f"{type(method).__name__} has a local_loss, which gets the inputs of the last linear layer as "
                f"features, but {type(model.module).__name__} has no nn.Linear; use another model, or another method"
            )
        self._last = layers[-1]
        self._features: Tensor

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Features are kept as long as this lasts; afterwards the module is as the caller made it."""
        handle = self._last.register_forward_pre_hook(self._keep_features)
        try:
            yield
        finally:
            handle.remove()

    def begin(self, server: Server, client: Client) -> None:
        with calling(self._method, "frozen_models"):
            vectors = self._method.frozen_models(server, client)
            # Running statistics are the server's: a method keeps parameters only.
            common = {} if server.statistics is None else self._model.statistics_views(server.statistics)
            own = {name: self._model.layout.personal(v.to(server.model), server.model) for name, v in vectors.items()}
            frozen = {name: self._model.views(v) for name, v in own.items()}
            self._frozen = {name: {**views, **common} for name, views in frozen.items()}
        self._client = client

    def __call__(self, inputs: Tensor, targets: Tensor, logits: Tensor) -> Tensor:
        outputs = Outputs(logits, self._features)  # of the forward pass that gave these logits
        frozen = {name: self._outputs(parameters, inputs) for name, parameters in self._frozen.items()}
        with calling(self._method, "local_loss"):
            loss = self._method.local_loss(Batch(outputs, targets, frozen, self._client))
        name = type(self._method).__name__
        if not isinstance(loss, Tensor) or loss.dim() != 0:
            found = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise HookError(f"{name}.local_loss returned {found}; expected a scalar tensor")
        if not loss.requires_grad:  # a term without effect is a mistake: detached, or features of a single layer
            raise HookError(
                f"{name}.local_loss has no gradient: it must depend on the logits or features of batch.outputs, and "
                "features on parameters (a network with one layer has none before them)"
            )
        return loss

    def _outputs(self, parameters: dict[str, Tensor], inputs: Tensor) -> Outputs:
        module = self._model.module
        module.eval()
        with torch.no_grad(), self._model.autocast():
            logits = functional_call(module, parameters, (inputs,))
        module.train()
        return Outputs(logits, self._features)

    def _keep_features(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._features = inputs[0].flatten(1)

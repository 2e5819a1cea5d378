"""A module whose parameters and gradients are views of two flat vectors.

Methods, aggregation, state and checkpoints then deal with one vector [P] in place of a dictionary of tensors, and a
local step needs no flattening.  Kernels of convolutions and images lie in memory channels last: on a CPU that makes a
step of the paper's CNN a fifth faster.

Running statistics of BatchNorm are views too, behind the parameters: training changes them in place.

In half precision these vectors stay float32; the module computes in bfloat16 or float16 within `autocast()`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import accumulate

import torch
from torch import Tensor, nn

from ...common.schema import ConfigError
from ...models.norm_statistics import batch_norms, check_buffers
from ..vector_layout import VectorLayout


class FlatModel:
    def __init__(
        self,
        module: nn.Module,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
        half: torch.dtype | None = None,  # what matrix products and convolutions are computed in, in place of dtype
        norm_statistics: str = "refuse",
    ) -> None:
        check_buffers(module, norm_statistics)
        self.half = half
        self.module = module.to(device=device, dtype=dtype)
        self._parameters = {
            n: p for n, p in module.named_parameters() if p.requires_grad
        }  # frozen ones stay as they are
        if not self._parameters:
            raise ConfigError(
                f"the model {type(module).__name__} has no parameter that requires grad: nothing to train"
            )
        self._statistics = {
            f"{name}.{buffer}" if name else buffer: getattr(layer, buffer)
            for name, layer in batch_norms(module)
            for buffer in ("running_mean", "running_var")
            if layer.running_mean is not None
        }
        parts = [p.detach() for p in self._parameters.values()], [*self._statistics.values()]
        self.whole = torch.cat([_flattened(part) for part in (*parts[0], *parts[1])])  # [N] what is sent and kept
        parameters = sum(part.numel() for part in parts[0])
        self.vector = self.whole[:parameters]  # [P] the parameters themselves
        self.layout = VectorLayout(len(self.whole) - parameters, self._local() if norm_statistics == "local" else None)
        self.gradient = torch.zeros_like(self.vector)  # [P] backward() adds to it
        views, gradients = self.views(self.vector), self.views(self.gradient)
        for name, p in self._parameters.items():
            p.data, p.grad = views[name], gradients[name]
        for name, view in self.statistics_views(self.whole[parameters:]).items():
            owner, _, buffer = name.rpartition(".")
            setattr(module.get_submodule(owner), buffer, view)

    def views(self, vectors: Tensor) -> dict[str, Tensor]:
        """Each parameter's part of vectors [.., P], in its own shape behind the leading dimensions."""
        sizes = [p.numel() for p in self._parameters.values()]
        parts = zip(self._parameters.items(), vectors.split(sizes, -1), strict=True)
        return {name: _shaped(part, p.shape) for (name, p), part in parts}

    def statistics_views(self, statistics: Tensor) -> dict[str, Tensor]:
        """Each buffer's part of running statistics [.., S]."""
        sizes = [buffer.numel() for buffer in self._statistics.values()]
        return dict(zip(self._statistics, statistics.split(sizes, -1), strict=True)) if sizes else {}

    def offsets(self) -> dict[str, int]:
        """Where each parameter begins in the vector."""
        sizes = [p.numel() for p in self._parameters.values()]
        return dict(zip(self._parameters, accumulate(sizes, initial=0), strict=False))

    def __len__(self) -> int:
        return self.vector.numel()

    def load(self, parameters: Tensor, statistics: Tensor | None) -> None:
        """[P], and [S] of a model that has running statistics."""
        self.vector.copy_(parameters)
        if statistics is not None:
            self.whole[len(self.vector) :].copy_(statistics)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits [B, C], of sequences [B T, C]; `backward` then leaves the parameters' gradient in `gradient`."""
        self.gradient.zero_()
        with self.autocast():
            self._logits = logits = by_position(self.module(inputs))
        return logits

    def backward(self, gradient: Tensor) -> None:
        self._logits.backward(gradient)

    def autocast(self) -> AbstractContextManager[object]:
        """Within it, calls of the module compute in half precision, if this model does at all.

        Without autocast's cache of parameters in half precision: local steps change the parameters behind autograd's
        back, which would leave it stale, and a CUDA graph must not remember it.
        """
        if self.half is None:
            return nullcontext()
        return torch.autocast(self.vector.device.type, self.half, cache_enabled=False)

    @contextmanager
    def holding(self, vector: Tensor) -> Iterator[nn.Module]:
        """The module with another whole vector [N] for a while."""
        own = self.whole.clone()
        self.whole.copy_(vector)
        try:
            yield self.module
        finally:
            self.whole.copy_(own)

    def _local(self) -> Tensor | None:
        """bool [N]: parameters and running statistics of BatchNorm layers; None: there are none."""
        owners = {name for name, _ in batch_norms(self.module)}
        named = {**self._parameters, **self._statistics}
        local = torch.cat([torch.full((p.numel(),), n.rpartition(".")[0] in owners) for n, p in named.items()])
        return local.to(self.whole.device) if local.any() else None


def by_position(logits: Tensor) -> Tensor:
    """Logits of sequences [B, T, C] as [B T, C]: to the loss, every position is a sample.  Others as they are."""
    return logits.flatten(0, 1) if logits.dim() == 3 else logits


def channels_last(inputs: Tensor) -> Tensor:
    """Images [n, C, H, W] in the memory order that convolutions are fast with; other inputs as they are."""
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs


def _flattened(parameter: Tensor) -> Tensor:
    return (parameter.permute(0, 2, 3, 1) if parameter.dim() == 4 else parameter).reshape(-1)


def _shaped(part: Tensor, shape: torch.Size) -> Tensor:
    if len(shape) != 4:
        return part.view((*part.shape[:-1], *shape))
    out, channels, height, width = shape
    return part.view((*part.shape[:-1], out, height, width, channels)).movedim(-1, -3)

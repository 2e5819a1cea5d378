"""BatchNorm and dropout of K stacked clients: each as if its client were alone.

BatchNorm looks at a client's own samples, without the padding of smaller clients.  Dropout takes the numbers that the
client draws when it is trained by itself, whatever its group is: vmap's own randomness would depend on the group.
Within `ClientLayers` the two functions are replaced, before vmap takes them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import vmap
from torch.overrides import TorchFunctionMode

from ...data.host_to_device import send
from ...models.norm_statistics import batch_norms

_CHANNEL_DROPOUTS = (F.dropout1d, F.dropout2d, F.dropout3d)  # of whole channels


@dataclass(frozen=True)
class Draw:
    """One dropout of a forward pass."""

    shape: tuple[int, ...]  # of its random numbers, for a batch [B, ..]
    p: float

    def noise(self, counts: Sequence[int], generators: Sequence[torch.Generator], like: Tensor) -> Tensor:
        """[K, B, ..] the factors of all clients, drawn for their first `counts` samples; 1 for padding."""
        factors = like.new_ones(len(counts), *self.shape)
        for rows, count, generator in zip(factors, counts, generators, strict=True):
            if count and self.p == 1:
                rows[:count] = 0.0
            elif count:  # as torch does it for one client: a client without a batch in this step draws nothing
                own = like.new_empty(count, *self.shape[1:])
                rows[:count] = own.bernoulli_(1 - self.p, generator=generator).div_(1 - self.p)
        return factors


class StackedLayers:
    """Calls a network that has BatchNorm or dropout for K clients.  Before their first pass: `generators`, of dropout;
    before every batch: `counts`."""

    generators: Sequence[torch.Generator] = ()  # [K] what each client draws from
    counts: Sequence[int]  # [K] samples of each client in the batch; behind them is padding

    def __init__(self, module: nn.Module) -> None:
        self._module, self._mode = module, ClientLayers()
        self.draws = any(isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0 for layer in module.modules())
        self._draws: dict[torch.Size, list[Draw]] = {}  # of inputs [B, ..] of each shape

    @classmethod
    def of(cls, module: nn.Module) -> StackedLayers | None:
        """None if the network has neither."""
        layers = cls(module)
        return layers if layers.draws or any(True for _ in batch_norms(module)) else None

    def forward(
        self, call: Callable[[dict[str, Tensor], Tensor], Tensor], tensors: dict[str, Tensor], inputs: Tensor
    ) -> Tensor:
        """`call` under vmap: parameters and running statistics [K, ..] and inputs [K, B, ..] -> [K, B, C]."""
        noise: list[Tensor] = []
        if self.draws and self._module.training:
            like = next(iter(tensors.values()))
            noise = [draw.noise(self.counts, self.generators, like) for draw in self._listed(call, tensors, inputs)]
        counts = send(torch.tensor(self.counts), inputs.device).unsqueeze(1)
        rows = torch.arange(inputs.shape[1], device=inputs.device) < counts  # [K, B]
        mode = self._mode
        mode.fewest = min((count for count in self.counts if count), default=2)

        def of_one(tensors: dict[str, Tensor], inputs: Tensor, rows: Tensor, noise: list[Tensor]) -> Tensor:
            mode.rows, mode.noise = rows, iter(noise)
            return call(tensors, inputs)

        with mode:
            return vmap(of_one)(tensors, inputs, rows, noise)

    def _listed(
        self, call: Callable[[dict[str, Tensor], Tensor], Tensor], tensors: dict[str, Tensor], inputs: Tensor
    ) -> list[Draw]:
        """The dropouts of a pass, in their order: found once, by a pass of one client."""
        if inputs.shape[1:] not in self._draws:
            mode = self._mode
            mode.rows, mode.noise, mode.draws = inputs.new_ones(inputs.shape[1], dtype=torch.bool), None, []
            mode.fewest = 2  # whatever it is: running statistics are copies, and the pass itself will tell
            with torch.no_grad(), mode:
                call({name: rows[0].clone() for name, rows in tensors.items()}, inputs[0])
            self._draws[inputs.shape[1:]] = mode.draws
        return self._draws[inputs.shape[1:]]


class ClientLayers(TorchFunctionMode):
    """Set before a call of the network under vmap: `rows` and `noise`; with noise None, dropouts are listed in `draws`
    and leave their input as it is."""

    rows: Tensor  # bool [B]: the client's samples that are no padding
    noise: Iterator[Tensor] | None
    draws: list[Draw]
    fewest: int  # samples of a client that has any in this batch

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.batch_norm:
            return self._batch_norm(*args, **kwargs)
        if func is F.dropout or func in _CHANNEL_DROPOUTS:
            return self._dropout(func in _CHANNEL_DROPOUTS, *args, **kwargs)
        return func(*args, **kwargs)

    def _dropout(
        self, channels: bool, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Any:
        if not training or p == 0:
            return input
        self._check_batch(input)
        if channels and input.dim() < 3:
            raise ValueError(f"dropout of channels takes [B, C, ..], not {tuple(input.shape)}")
        if self.noise is None:
            tail = (input.shape[1], *[1] * (input.dim() - 2)) if channels else input.shape[1:]
            self.draws.append(Draw((input.shape[0], *tail), p))
            return input
        return input * next(self.noise).to(input.dtype)

    def _batch_norm(
        self,
        input: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        """What F.batch_norm does to the rows that are no padding."""
        over, each = [0, *range(2, input.dim())], (1, -1, *[1] * (input.dim() - 2))
        x = input.to(torch.promote_types(input.dtype, torch.float32))
        if training:
            self._check_batch(input)
            values = input[0, 0].numel()
            if self.fewest * values < 2:
                raise ValueError(f"Expected more than 1 value per channel when training, got {tuple(input.shape)}")
            rows = self.rows.view(-1, *[1] * (input.dim() - 1)).to(x.dtype)
            count = rows.sum() * values
            mean = (x * rows).sum(over) / count.clamp(min=1)
            var = ((x - mean.view(each)) * rows).square().sum(over) / count.clamp(min=1)
            if running_mean is not None and running_var is not None:
                with torch.no_grad():  # a client without a batch keeps its own
                    part = momentum * (count > 0).to(x.dtype)
                    running_mean.mul_(1 - part).add_(mean * part)
                    running_var.mul_(1 - part).add_(var * (part * count / (count - 1).clamp(min=1)))
        else:
            assert running_mean is not None
            assert running_var is not None
            mean, var = running_mean, running_var
        y = (x - mean.view(each)) * (var + eps).rsqrt().view(each)
        if weight is not None:
            y = y * weight.view(each)
        if bias is not None:
            y = y + bias.view(each)
        return y.to(input.dtype)

    def _check_batch(self, input: Tensor) -> None:
        if input.shape[0] != len(self.rows):
            raise ValueError(
                f"BatchNorm or dropout of {tuple(input.shape)} in a batch of {len(self.rows)}: whose samples these are "
                "is not known"
            )

"""Mixed precision of a vectorised network: what torch.autocast does, before vmap takes a layer apart.

Autocast decides operation by operation below vmap, which by then has turned convolutions into others that autocast does
not know and split the bias off a linear layer: half of the network would stay in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

_PRODUCTS: frozenset[Callable[..., Any]] = frozenset(
    (
        *(F.linear, F.bilinear, F.conv1d, F.conv2d, F.conv3d),
        *(F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d),
        *(F.scaled_dot_product_attention, F.multi_head_attention_forward),
        *(torch.matmul, torch.mm, torch.bmm, torch.addmm, torch.addbmm, torch.baddbmm, torch.einsum),
        *(Tensor.matmul, Tensor.__matmul__, Tensor.__rmatmul__, Tensor.mm, Tensor.bmm),
    )
)
# Sums over many numbers, which the few digits of half precision would spoil; vmap wants them in one type, too.
_SUMS: frozenset[Callable[..., Any]] = frozenset(
    (
        *(F.group_norm, F.layer_norm, F.instance_norm, F.rms_norm, F.normalize),
        *(F.softmax, F.log_softmax, torch.softmax, torch.log_softmax, Tensor.softmax, Tensor.log_softmax),
    )
)


class HalfProducts(TorchFunctionMode):
    """Within it, products are computed in `half`, norms and softmaxes in float32, all else in what it is given."""

    def __init__(self, half: torch.dtype) -> None:
        super().__init__()
        self._half = half

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in _PRODUCTS:
            args, kwargs = tree_map(lambda x: _cast(x, self._half), (tuple(args), dict(kwargs)))
        elif func in _SUMS:
            args, kwargs = tree_map(lambda x: _cast(x, torch.float32), (tuple(args), dict(kwargs)))
        return func(*args, **kwargs)


def _cast(x: Any, dtype: torch.dtype) -> Any:
    # Contiguous: a convolution in half precision leaves its channels last, which vmap's group norm cannot ask about.
    cast = isinstance(x, Tensor) and x.is_floating_point()
    return x.to(dtype, memory_format=torch.contiguous_format) if cast else x

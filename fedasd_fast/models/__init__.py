"""Models by name, or any nn.Module by import path."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from ..common.imported import keywords
from ..common.schema import ConfigError, convert, nearest
from . import char_lstm, char_transformer, convnet, mlp, resnet, vit
from .custom import build_imported
from .norm_statistics import check_buffers

__all__ = ["build", "names"]

_BUILDERS: dict[str, Callable[..., nn.Module]] = {
    "mlp": mlp.mlp,
    "logistic": mlp.logistic,
    "cnn_cifar": convnet.cnn_cifar,
    "convnet_gn": convnet.convnet_gn,
    "resnet20_gn": resnet.resnet20_gn,
    "resnet18_gn": resnet.resnet18_gn,
    "vit_small": vit.vit_small,
    "tiny_vit": vit.tiny_vit,
    "char_lstm": char_lstm.char_lstm,
    "char_transformer": char_transformer.char_transformer,
}


def names() -> list[str]:
    return list(_BUILDERS)


def build(
    name: str,  # one of names(), or package.module:Class
    args: Mapping[str, Any] | None = None,
    *,
    num_classes: int,
    input_shape: tuple[int, ...],  # of one sample: (C, H, W), (64,), or (T,) token ids
    norm_statistics: str = "refuse",
) -> nn.Module:
    """A model with initial parameters drawn from torch's global generator."""
    args = dict(args or {})
    if ":" in name:
        model = build_imported(name, args, num_classes=num_classes, input_shape=input_shape)
    elif name in _BUILDERS:
        builder = _BUILDERS[name]
        model = builder(num_classes=num_classes, input_shape=tuple(input_shape), **_checked(name, builder, args))
    else:
        raise ConfigError(f"model = {name!r}{nearest(name, names())} (package.module:Class names a model of your own)")
    check_buffers(model, norm_statistics, name)
    return model


def _checked(name: str, builder: Callable[..., nn.Module], args: Mapping[str, Any]) -> dict[str, Any]:
    known = [key for key in keywords(builder) if key not in ("num_classes", "input_shape")]
    hints = typing.get_type_hints(builder)
    for key in args:
        if key not in known:
            tail = nearest(key, known) if known else "; it takes no arguments"
            raise ConfigError(f"unknown argument model_args.{key} of {name}{tail}")
    return {key: convert(hints[key], value, f"model_args.{key}") for key, value in args.items()}

"""Vision transformers from timm (an optional dependency); images of any size are resized to 224 x 224."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..common.schema import ConfigError
from .convnet import image_shape

IMAGE_SIZE = 224


class ResizedModel(nn.Module):
    """Resizes the images, then applies a backbone and a head."""

    def __init__(self, backbone: nn.Module, head: nn.Module, double_softmax: bool = False) -> None:
        super().__init__()
        self.backbone, self.head, self.double_softmax = backbone, head, double_softmax

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-2:] != (IMAGE_SIZE, IMAGE_SIZE):
            x = F.interpolate(x, size=(IMAGE_SIZE, IMAGE_SIZE), mode="bilinear", align_corners=False)
        logits: Tensor = self.head(self.backbone(x))
        return logits.softmax(-1) if self.double_softmax else logits


def vit_small(
    *,
    num_classes: int,
    input_shape: tuple[int, ...],
    pretrained: bool | str = False,
    double_softmax: bool = False,
) -> nn.Module:
    """ViT-S/16 with a head 384 -> 256 -> C.

    `pretrained`: true for timm's own weights (downloaded, or from its cache), or the path of a weights file.
    `double_softmax`: return probabilities in place of logits, as the paper's results for ViT seem to have been made.
    """
    channels, _, _ = image_shape("vit_small", input_shape)
    backbone = _create("vit_small_patch16_224", pretrained is True, num_classes=0, in_chans=channels)
    layers = [nn.Linear(384, 256), nn.Linear(256, num_classes)]
    for layer in layers:
        nn.init.xavier_normal_(layer.weight)
        nn.init.zeros_(layer.bias)
    model = ResizedModel(backbone, nn.Sequential(*layers), double_softmax)
    if isinstance(pretrained, str):
        load_weights(model, pretrained)
    return model


def tiny_vit(
    *, num_classes: int, input_shape: tuple[int, ...], pretrained: bool | str = False, drop_path: float = 0.2
) -> nn.Module:
    """Tiny-ViT-21M with a LayerNorm over channels in place of every BatchNorm."""
    channels, _, _ = image_shape("tiny_vit", input_shape)
    if not 0 <= drop_path < 1:
        raise ConfigError(f"model_args.drop_path = {drop_path}; expected a probability in [0, 1)")
    if pretrained is True:
        raise ConfigError(
            "model_args.pretrained = true, but timm's weights of tiny_vit belong to its BatchNorm layers, which are "
            "replaced here; give a weights file of this model, or false"
        )
    options = dict(num_classes=num_classes, in_chans=channels, drop_path_rate=drop_path)
    backbone = _create("tiny_vit_21m_224", False, **options)
    _adapt_tiny_vit(backbone)
    model = ResizedModel(backbone, nn.Identity())
    if isinstance(pretrained, str):
        load_weights(model, pretrained)
    return model


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of [n, C, H, W], at each pixel on its own."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


class _ForgettingCache(dict[str, Tensor]):
    """Disables timm's cache of attention biases in eval mode: here the parameters may change between evaluations."""

    def __getitem__(self, key: str) -> Tensor:
        return self.pop(key)


def _adapt_tiny_vit(backbone: nn.Module) -> None:
    for module in list(backbone.modules()):
        if hasattr(module, "attention_bias_cache"):
            module.attention_bias_cache = _ForgettingCache()  # type: ignore[assignment]
        for name, child in module.named_children():
            if isinstance(child, nn.BatchNorm2d):
                setattr(module, name, ChannelNorm(child.num_features, eps=child.eps))


def _create(name: str, pretrained: bool, **options: Any) -> nn.Module:
    create = _timm().create_model
    try:
        model: nn.Module = create(name, pretrained=pretrained, **options)
    except Exception as error:
        if not pretrained:
            raise
        raise ConfigError(
            f"model_args.pretrained = true, but timm could not download its weights of {name} ({error}); connect to "
            "the network once, give a file (model_args.pretrained=weights.safetensors), or use false"
        ) from error
    return model


def _timm() -> ModuleType:
    try:
        return importlib.import_module("timm")
    except Exception as error:  # a torchvision that does not match torch raises RuntimeError
        raise ImportError(
            f"vit_small and tiny_vit need timm, which cannot be imported ({error}); pip install 'fedasd-fast[vit]', "
            "with a torchvision that matches the installed torch"
        ) from error


def load_weights(model: ResizedModel, path: str) -> None:
    """Loads the weights of the backbone, or of the whole model if their names begin with `backbone.`; the classifier of
    another task is left out."""
    weights = _read(path)
    if any(key.startswith("backbone.") for key in weights):
        target: nn.Module = model
    else:
        target = model.backbone
    own = target.state_dict()
    classifier = ("head.weight", "head.bias", "head.fc.weight", "head.fc.bias")
    kept = {
        key: value
        for key, value in weights.items()
        if not (key.endswith(classifier) and (key not in own or own[key].shape != value.shape))
    }
    missing = [key for key in own if key not in kept and not key.endswith(classifier)]
    wrong = [key for key in kept if key not in own or own[key].shape != kept[key].shape]
    if missing or wrong:
        raise ConfigError(
            f"model_args.pretrained = {path!r} does not have the weights of this model: "
            f"{f'{missing[0]} is missing' if missing else f'{wrong[0]} is not in it, or has another shape'}"
        )
    target.load_state_dict(kept, strict=False)


def _read(path: str) -> Mapping[str, Tensor]:
    if not Path(path).is_file():
        raise ConfigError(f"model_args.pretrained = {path!r} is not a file; expected .safetensors or .pt")
    if path.endswith(".safetensors"):
        return importlib.import_module("safetensors.torch").load_file(path)  # type: ignore[no-any-return]
    weights: Any = torch.load(path, map_location="cpu", weights_only=True)
    for key in ("state_dict", "model"):
        if isinstance(weights, Mapping) and isinstance(weights.get(key), Mapping):
            weights = weights[key]
    if not isinstance(weights, Mapping) or not all(isinstance(value, Tensor) for value in weights.values()):
        raise ConfigError(f"model_args.pretrained = {path!r} does not hold named tensors")
    return weights

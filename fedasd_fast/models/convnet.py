"""The two convolutional networks of the ASD paper's main tables, for any image size and number of channels."""

from __future__ import annotations

from torch import nn

from ..common.schema import ConfigError


def cnn_cifar(*, num_classes: int, input_shape: tuple[int, ...]) -> nn.Module:
    """Two 5 x 5 convolutions and three linear layers: 797,962 parameters for CIFAR-10, 815,332 for CIFAR-100."""
    channels, height, width = image_shape("cnn_cifar", input_shape, least=16)
    rows, columns = (((side - 4) // 2 - 4) // 2 for side in (height, width))
    return nn.Sequential(
        *(nn.Conv2d(channels, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Flatten(),
        *(nn.Linear(64 * rows * columns, 384), nn.ReLU()),
        *(nn.Linear(384, 192), nn.ReLU()),
        nn.Linear(192, num_classes),
    )


def convnet_gn(*, num_classes: int, input_shape: tuple[int, ...]) -> nn.Module:
    """Three 3 x 3 convolutions with GroupNorm and three linear layers: 2,447,688 parameters for Tiny-ImageNet."""
    channels, height, width = image_shape("convnet_gn", input_shape, least=8)
    layers: list[nn.Module] = []
    for inputs in (channels, 64, 64):
        layers += [nn.Conv2d(inputs, 64, 3, padding=1), nn.GroupNorm(4, 64), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        *(nn.Linear(64 * (height // 8) * (width // 8), 512), nn.ReLU()),
        *(nn.Linear(512, 384), nn.ReLU()),
        nn.Linear(384, num_classes),
    )


def image_shape(model: str, input_shape: tuple[int, ...], least: int = 1) -> tuple[int, int, int]:
    """Channels, height and width, or an error that names the model."""
    if len(input_shape) != 3:
        raise ConfigError(
            f"model = {model}, but the inputs have shape {list(input_shape)}; expected images [channels, height, "
            "width], or use model = mlp"
        )
    channels, height, width = input_shape
    if min(height, width) < least:
        raise ConfigError(
            f"model = {model} needs images of at least {least} x {least}, but they are {height} x {width}"
        )
    return channels, height, width

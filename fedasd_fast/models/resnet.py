"""Residual networks with GroupNorm(2) in place of BatchNorm, for small images: a 3 x 3 stem without pooling."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from .convnet import image_shape


class ResidualBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            *(_conv(inputs, outputs, 3, stride), nn.GroupNorm(2, outputs), nn.ReLU()),
            *(_conv(outputs, outputs, 3), nn.GroupNorm(2, outputs)),
        )
        same = inputs == outputs and stride == 1
        self.shortcut: nn.Module = (
            nn.Identity() if same else nn.Sequential(_conv(inputs, outputs, 1, stride), nn.GroupNorm(2, outputs))
        )
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.branch(x) + self.shortcut(x))  # type: ignore[no-any-return]


def resnet20_gn(*, num_classes: int, input_shape: tuple[int, ...]) -> nn.Module:
    """The CIFAR network of 20 layers, with 1 x 1 convolutions where a shortcut changes its size: 272,474 parameters."""
    return _resnet("resnet20_gn", (16, 32, 64), 3, num_classes, input_shape)


def resnet18_gn(*, num_classes: int, input_shape: tuple[int, ...]) -> nn.Module:
    """ResNet-18: 11,271,432 parameters for Tiny-ImageNet."""
    return _resnet("resnet18_gn", (64, 128, 256, 512), 2, num_classes, input_shape)


def _resnet(name: str, widths: Sequence[int], depth: int, num_classes: int, input_shape: tuple[int, ...]) -> nn.Module:
    channels, _, _ = image_shape(name, input_shape)
    layers: list[nn.Module] = [_conv(channels, widths[0], 3), nn.GroupNorm(2, widths[0]), nn.ReLU()]
    inputs = widths[0]
    for stage, width in enumerate(widths):
        for i in range(depth):
            layers.append(ResidualBlock(inputs, width, stride=2 if stage > 0 and i == 0 else 1))
            inputs = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, num_classes))


def _conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    conv = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv

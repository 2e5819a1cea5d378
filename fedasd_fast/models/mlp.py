"""Multi-layer perceptron and logistic regression; inputs of any shape are flattened."""

from __future__ import annotations

import math
from itertools import pairwise

from torch import nn

from ..common.schema import ConfigError


def mlp(*, num_classes: int, input_shape: tuple[int, ...], hidden: tuple[int, ...] = (128, 64)) -> nn.Module:
    if hidden and min(hidden) < 1:
        raise ConfigError(f"model_args.hidden = {list(hidden)}; expected positive sizes of the hidden layers")
    sizes = [math.prod(input_shape), *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], num_classes))


def logistic(*, num_classes: int, input_shape: tuple[int, ...]) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), num_classes))

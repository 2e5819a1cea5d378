"""Swapped layers give the same bits, and only those that may be are swapped."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from fedasd_fast import models
from fedasd_fast.models.layer_order import pool_before_relu


def kinds(model: nn.Module) -> list[str]:
    return [type(layer).__name__ for layer in model.modules() if not list(layer.children())]


def outputs_and_gradients(model: nn.Module, x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    y = model(x)
    return [y, *torch.autograd.grad((y * y.detach().cos()).sum(), [x, *model.parameters()])]


@pytest.mark.parametrize("name", ["cnn_cifar", "convnet_gn"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_same_bits(name: str, dtype: torch.dtype) -> None:
    model = models.build(name, num_classes=7, input_shape=(3, 17, 16)).to(dtype)
    swapped = copy.deepcopy(model)
    pool_before_relu(swapped)
    assert kinds(swapped) != kinds(model)
    assert list(swapped.state_dict()) == list(model.state_dict())
    rng = torch.Generator().manual_seed(0)
    for scale in (1.0, 0.0):  # zeros: every window has ties
        x = scale * torch.randn(4, 3, 17, 16, dtype=dtype, generator=rng)
        for a, b in zip(outputs_and_gradients(model, x), outputs_and_gradients(swapped, x), strict=True):
            assert torch.equal(a, b)


def test_windows_that_overlap_and_are_padded() -> None:
    model = nn.Sequential(nn.Identity(), nn.Sequential(nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=1, padding=1)))
    swapped = copy.deepcopy(model)
    pool_before_relu(swapped)
    assert kinds(swapped) == ["Identity", "MaxPool2d", "ReLU"]
    x = torch.randn(2, 1, 6, 5, generator=torch.Generator().manual_seed(0))
    x[0, 0, 2, 2] = float("nan")
    assert torch.equal(model(x.clone()).nan_to_num(9.0), swapped(x.clone()).nan_to_num(9.0))


class Tapped(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return self[0](x).sum() + super().forward(x)


def test_what_is_left_alone() -> None:
    hooked = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2))
    hooked[0].register_forward_hook(lambda *_: None)
    pair = (nn.ReLU(), nn.MaxPool2d(2))
    for model in (hooked, Tapped(*pair), nn.ModuleDict({"a": nn.Sequential(*pair)}),
                  nn.Sequential(nn.GELU(), nn.MaxPool2d(2)), nn.Sequential(nn.ReLU(), nn.AvgPool2d(2))):  # fmt: skip
        before = kinds(model)
        pool_before_relu(model)
        assert kinds(model) == before

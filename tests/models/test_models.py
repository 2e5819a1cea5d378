from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedasd_fast import models
from fedasd_fast.common.randomness import Stream, torch_seeded
from fedasd_fast.common.schema import ConfigError

CIFAR, TINY = (3, 32, 32), (3, 64, 64)


def parameters(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "classes", "shape", "count"),
    [
        ("cnn_cifar", 10, CIFAR, 797_962),
        ("cnn_cifar", 100, CIFAR, 815_332),
        ("convnet_gn", 200, TINY, 2_447_688),
        ("resnet20_gn", 10, CIFAR, 272_474),
        ("resnet18_gn", 200, TINY, 11_271_432),
        ("mlp", 10, (64,), 64 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10),
        ("logistic", 7, (1, 4, 4), 16 * 7 + 7),
    ],
)
def test_parameter_counts(name, classes, shape, count):
    with torch.device("meta"):
        assert parameters(models.build(name, {}, num_classes=classes, input_shape=shape)) == count


SHAPES = [
    ("cnn_cifar", (3, 32, 32)),
    ("cnn_cifar", (1, 28, 30)),
    ("cnn_cifar", (2, 16, 19)),
    ("convnet_gn", (1, 28, 33)),
    ("resnet20_gn", (3, 8, 8)),
    ("resnet18_gn", (1, 9, 8)),
    ("mlp", (64,)),
    ("mlp", (1, 8, 8)),
    ("logistic", (3, 5)),
]


@pytest.mark.parametrize(("name", "shape"), SHAPES)
def test_forward_gradients_and_initialisation(name, shape):
    def fresh(seed):
        with torch_seeded(seed, Stream.INIT):
            return models.build(name, {}, num_classes=5, input_shape=shape)

    before = torch.random.get_rng_state()
    model, again, other = fresh(1), fresh(1), fresh(2)
    assert torch.equal(torch.random.get_rng_state(), before)
    weights = [nn.utils.parameters_to_vector(m.parameters()) for m in (model, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert not list(model.buffers())

    x = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0))
    logits = model(x)
    assert logits.shape == (4, 5)
    F.cross_entropy(logits, torch.tensor([0, 1, 2, 3])).backward()
    dead = [key for key, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert dead == []


def test_mlp_layers():
    model = models.build("mlp", {"hidden": [7]}, num_classes=3, input_shape=(5,))
    assert [tuple(p.shape) for p in model.parameters()] == [(7, 5), (7,), (3, 7), (3,)]
    assert parameters(models.build("mlp", {"hidden": []}, num_classes=3, input_shape=(5,))) == 18


def test_resnet18_is_the_well_known_one():
    """Strides 1, 2, 2, 2 and no pooling in the stem: 32 x 32 images end at 4 x 4."""
    with torch.device("meta"):
        model = models.build("resnet18_gn", {}, num_classes=2, input_shape=CIFAR)
        features = nn.Sequential(*list(model)[:-3])(torch.empty(1, *CIFAR))
    assert features.shape == (1, 512, 4, 4)
    assert sum(isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3) for m in model.modules()) == 17


@pytest.mark.parametrize(
    ("name", "args", "shape", "message"),
    [
        ("cnn_cifr", {}, CIFAR, r"model = 'cnn_cifr'; did you mean cnn_cifar"),
        ("mlp", {"hiden": [3]}, (4,), r"model_args.hiden of mlp; did you mean hidden"),
        ("mlp", {"hidden": ["a"]}, (4,), r"model_args.hidden\[0\] = 'a'; expected a whole number"),
        ("mlp", {"hidden": 3}, (4,), r"model_args.hidden = 3; expected a list"),
        ("mlp", {"hidden": [0]}, (4,), r"model_args.hidden = \[0\]; expected positive"),
        ("mlp", {"num_classes": 3}, (4,), r"unknown argument model_args.num_classes"),
        ("logistic", {"hidden": [3]}, (4,), r"model_args.hidden of logistic; it takes no arguments"),
        ("cnn_cifar", {}, (64,), r"expected images .* or use model = mlp"),
        ("cnn_cifar", {}, (3, 12, 32), r"at least 16 x 16, but they are 12 x 32"),
    ],
)
def test_errors_name_the_argument(name, args, shape, message):
    with pytest.raises(ConfigError, match=message):
        models.build(name, args, num_classes=3, input_shape=shape)


def test_names():
    assert set(models.names()) >= {"mlp", "logistic", "cnn_cifar", "convnet_gn", "resnet20_gn", "vit_small", "tiny_vit"}

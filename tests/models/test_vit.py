"""Vision transformers; skipped with the reason where timm cannot be imported."""

from __future__ import annotations

import copy
import importlib
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedasd_fast import models
from fedasd_fast.common.randomness import Stream, torch_seeded
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.models import vit


@cache
def why_no_timm():
    try:
        importlib.import_module("timm")
    except Exception as error:
        return f"timm cannot be imported: {error}"
    return ""


needs_timm = pytest.mark.skipif(bool(why_no_timm()), reason=why_no_timm())


def build(name, shape=(3, 32, 32), **args):
    with torch_seeded(0, Stream.INIT):
        return models.build(name, args, num_classes=5, input_shape=shape)


@pytest.mark.skipif(not why_no_timm(), reason="timm is installed")
def test_without_timm_the_error_says_what_to_install():
    with pytest.raises(ImportError, match=r"pip install 'fedasd-fast\[vit\]'"):
        build("vit_small")


def test_channel_norm_is_a_norm_over_channels():
    norm = vit.ChannelNorm(6)
    x = torch.randn(2, 6, 3, 4, generator=torch.Generator().manual_seed(0))
    expected = (x - x.mean(1, keepdim=True)) / (x.var(1, unbiased=False, keepdim=True) + norm.eps).sqrt()
    torch.testing.assert_close(norm(x), expected)


@needs_timm
def test_vit_small():
    model = build("vit_small")
    assert sum(p.numel() for p in model.parameters()) == 21_665_664 + 384 * 256 + 256 + 256 * 5 + 5
    assert model.head[0].bias.abs().max() == 0
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    logits = model(x)
    assert logits.shape == (2, 5)
    F.cross_entropy(logits, torch.tensor([0, 1])).backward()
    assert all(p.grad is not None for p in model.parameters())
    model.double_softmax = True
    torch.testing.assert_close(model(x), logits.softmax(-1))


@needs_timm
def test_tiny_vit_has_no_batch_norm_and_no_memory():
    model = build("tiny_vit", shape=(1, 28, 28), drop_path=0.1)
    assert not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules())
    assert 19e6 < sum(p.numel() for p in model.parameters()) < 22e6
    x = torch.randn(1, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    F.cross_entropy(model(x), torch.tensor([1])).backward()
    assert all(p.grad is not None for p in model.parameters())
    model.eval()(x)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for p in twin.parameters():
            p.mul_(1.5)
        changed = twin(x)
    fresh = build("tiny_vit", shape=(1, 28, 28)).eval()
    fresh.load_state_dict(twin.state_dict())
    assert torch.equal(fresh(x), changed)


@needs_timm
def test_weights_from_a_file(tmp_path):
    from safetensors.torch import save_file

    model = build("vit_small")
    weights = {key: value + 1 for key, value in model.backbone.state_dict().items()}
    weights["head.weight"] = torch.zeros(1000, 384)  # of another task
    save_file(weights, tmp_path / "w.safetensors")
    torch.save(
        {
            "state_dict": {f"backbone.{k}": v for k, v in weights.items() if "head" not in k}
            | {f"head.{k}": v for k, v in model.head.state_dict().items()}
        },
        tmp_path / "w.pt",
    )
    for name in ("w.safetensors", "w.pt"):
        loaded = build("vit_small", pretrained=str(tmp_path / name))
        assert torch.equal(loaded.backbone.cls_token, model.backbone.cls_token + 1)
    del weights["cls_token"]
    torch.save(weights, tmp_path / "w.pt")
    with pytest.raises(ConfigError, match="cls_token is missing"):
        build("vit_small", pretrained=str(tmp_path / "w.pt"))


@needs_timm
def test_argument_errors():
    with pytest.raises(ConfigError, match=r"pretrained = 'no.pt' is not a file"):
        build("vit_small", pretrained="no.pt")
    with pytest.raises(ConfigError, match=r"pretrained = true, but timm's weights"):
        build("tiny_vit", pretrained=True)
    with pytest.raises(ConfigError, match=r"drop_path = 1.5"):
        build("tiny_vit", drop_path=1.5)

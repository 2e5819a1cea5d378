from __future__ import annotations

import pytest
import torch
from torch import nn

from fedasd_fast.common.schema import ConfigError
from fedasd_fast.models import build
from fedasd_fast.models.char_lstm import LSTMLayer
from fedasd_fast.models.char_transformer import Block


def test_the_lstm_layer_is_torchs() -> None:
    torch.manual_seed(0)
    own, theirs = LSTMLayer(3, 5).double(), nn.LSTM(3, 5, batch_first=True).double()
    pairs = {"weight_ih_l0": own.input.weight, "bias_ih_l0": own.input.bias, "weight_hh_l0": own.recurrent.weight,
             "bias_hh_l0": own.recurrent.bias}  # fmt: skip
    theirs.load_state_dict({name: value.detach() for name, value in pairs.items()})
    x = torch.randn(2, 7, 3, dtype=torch.float64)
    torch.testing.assert_close(own(x), theirs(x)[0], rtol=0, atol=1e-14)


def test_the_block_is_torchs_pre_norm_layer() -> None:
    torch.manual_seed(0)
    own = Block(8, 2).double()
    theirs = nn.TransformerEncoderLayer(8, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True).double()
    attention, mlp = own.attention, own.mlp
    values = {
        "norm1": attention[0], "norm2": mlp[0], "linear1": mlp[1], "linear2": mlp[3],
        "self_attn.out_proj": attention[1].out,
    }  # fmt: skip
    state = {f"{name}.{key}": value for name, layer in values.items() for key, value in layer.state_dict().items()}
    qkv = attention[1].qkv
    theirs.load_state_dict({**state, "self_attn.in_proj_weight": qkv.weight, "self_attn.in_proj_bias": qkv.bias})
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    mask = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    torch.testing.assert_close(own(x), theirs(x, src_mask=mask, is_causal=True), rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", ["char_lstm", "char_transformer"])
def test_a_logit_depends_on_earlier_characters_only(name: str) -> None:
    torch.manual_seed(0)
    model = build(name, {"vocabulary": 11}, num_classes=7, input_shape=(9,))
    x = torch.randint(0, 11, (3, 9))
    changed = x.clone()
    changed[:, 5] = (x[:, 5] + 1) % 11
    one, other = model(x), model(changed)
    assert one.shape == (3, 9, 7)
    assert torch.equal(one[:, :5], other[:, :5])
    assert not torch.allclose(one[:, 5:], other[:, 5:])


def test_documented_sizes() -> None:
    lstm = build("char_lstm", num_classes=80, input_shape=(80,))
    cells = [4 * 256 * (inputs + 256 + 2) for inputs in (8, 256)]
    assert sum(p.numel() for p in lstm.parameters()) == 80 * 8 + sum(cells) + 257 * 80
    transformer = build("char_transformer", num_classes=80, input_shape=(32,))
    block = 2 * 2 * 64 + 64 * 192 + 192 + 64 * 64 + 64 + 64 * 256 + 256 + 256 * 64 + 64
    assert sum(p.numel() for p in transformer.parameters()) == 80 * 64 + 32 * 64 + 2 * block + 2 * 64 + 65 * 80


@pytest.mark.parametrize("name", ["char_lstm", "char_transformer"])
def test_images_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"model = {name} takes token ids \[n, T\], but .* \[3, 8, 8\]"):
        build(name, num_classes=5, input_shape=(3, 8, 8))


def test_the_width_is_a_multiple_of_heads() -> None:
    with pytest.raises(ConfigError, match="width = 10 with heads = 4; expected a multiple of heads"):
        build("char_transformer", {"width": 10}, num_classes=5, input_shape=(8,))

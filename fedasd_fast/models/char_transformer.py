"""Small causal transformer for the next character: token ids [B, T] -> logits [B, T, C].

Token and position embeddings, pre-norm blocks (Xiong et al., ICML 2020) of attention to this and earlier positions and
of a GELU layer four times as wide, a last norm, linear.  Without dropout, so that clients can be stacked.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from ..common.schema import ConfigError
from .char_lstm import require_positive, sequence_length


class CausalAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, width] -> [B, T, width]."""
        parts = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)  # [B, heads, T, width/heads]
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(attended.transpose(1, 2).flatten(-2))  # type: ignore[no-any-return]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width), CausalAttention(width, heads))
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x)
        return x + self.mlp(x)  # type: ignore[no-any-return]


class CharTransformer(nn.Module):
    def __init__(self, vocabulary: int, classes: int, length: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x) + self.positions.weight[: x.shape[1]]
        return self.head(self.norm(self.blocks(h)))  # type: ignore[no-any-return]


def char_transformer(
    *,
    num_classes: int,
    input_shape: tuple[int, ...],
    width: int = 64,
    depth: int = 2,
    heads: int = 4,
    vocabulary: int | None = None,
) -> nn.Module:
    """`vocabulary`: how many token ids there are; None: as many as classes."""
    length = sequence_length("char_transformer", input_shape)
    require_positive(width=width, depth=depth, heads=heads, vocabulary=vocabulary)
    if width % heads:
        raise ConfigError(f"model_args.width = {width} with heads = {heads}; expected a multiple of heads")
    return CharTransformer(vocabulary or num_classes, num_classes, length, width, depth, heads)

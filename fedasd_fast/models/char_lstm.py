"""LSTM for the next character: embedding, LSTM layers, linear; token ids [B, T] -> logits [B, T, C].

By default the one of McMahan et al. (AISTATS 2017) for Shakespeare: an embedding of 8 and two layers of 256.  The cells
are made of linear layers, since torch cannot stack its own LSTM (vmap has no rule for it); they compute what nn.LSTM
computes, with its parameters, initial values and order of gates.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..common.schema import ConfigError


class LSTMLayer(nn.Module):
    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.input = nn.Linear(inputs, 4 * hidden)  # gates: input, forget, cell, output
        self.recurrent = nn.Linear(hidden, 4 * hidden)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -1 / math.sqrt(hidden), 1 / math.sqrt(hidden))

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, inputs] -> [B, T, hidden], from a state of zeros."""
        gates = self.input(x)
        h = c = torch.zeros_like(gates[:, 0, : self.hidden])
        outputs = []
        for t in range(x.shape[1]):
            i, f, g, o = (gates[:, t] + self.recurrent(h)).chunk(4, dim=-1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return torch.stack(outputs, dim=1)


def char_lstm(
    *,
    num_classes: int,
    input_shape: tuple[int, ...],
    embedding: int = 8,
    hidden: int = 256,
    layers: int = 2,
    vocabulary: int | None = None,
) -> nn.Module:
    """`vocabulary`: how many token ids there are; None: as many as classes."""
    sequence_length("char_lstm", input_shape)
    require_positive(embedding=embedding, hidden=hidden, layers=layers, vocabulary=vocabulary)
    widths = [embedding, *[hidden] * layers]
    stack = [LSTMLayer(inputs, hidden) for inputs in widths[:-1]]
    return nn.Sequential(nn.Embedding(vocabulary or num_classes, embedding), *stack, nn.Linear(hidden, num_classes))


def sequence_length(name: str, input_shape: tuple[int, ...]) -> int:
    if len(input_shape) != 1:
        raise ConfigError(f"model = {name} takes token ids [n, T], but a sample has the shape {list(input_shape)}")
    return input_shape[0]


def require_positive(**arguments: int | None) -> None:
    for key, value in arguments.items():
        if value is not None and value < 1:
            raise ConfigError(f"model_args.{key} = {value}; expected a whole number of at least 1")

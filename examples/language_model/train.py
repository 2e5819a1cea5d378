"""A language model that distils from a frozen copy of itself: logits [B, T, C] with C = 32,000, padding, next words.

    python train.py

The text is Python's own manual, which comes with Python.  A small transformer reads all of it; then a client goes on
with one chapter, the debugger's, once with cross-entropy alone and once with ASD.  Printed is the cross-entropy per
word, on passages that were held back, of the client's chapter and of all others: what it learns and what it forgets.
"""

import copy
import re
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedasd_fast as fa

VOCABULARY, CONTEXT, WIDTH = 32_000, 32, 64
PADDING = -100  # what the loss ignores by default
CHAPTER = "debugger"


class LanguageModel(nn.Module):
    """A decoder of two layers; the output shares its weights with the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.position = nn.Parameter(torch.zeros(CONTEXT, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT), persistent=False)

    def forward(self, words: Tensor) -> Tensor:  # [B, T] -> [B, T, C]
        length = words.shape[1]
        x = self.embedding(words) + self.position[:length]
        x = self.layers(x, mask=self.mask[:length, :length], is_causal=True)
        return x @ self.embedding.weight.T


def passages(numbers: dict[str, int], text: str) -> tuple[Tensor, Tensor]:
    """Words [N, T] and the words that follow them [N, T]; after the end of a passage there is only padding."""
    rows = []
    for paragraph in text.split("\n\n"):
        words = [numbers.setdefault(word, len(numbers)) for word in re.findall(r"\w+|[^\w\s]", paragraph)]
        rows += [words[i : i + CONTEXT + 1] for i in range(0, len(words) - 1, CONTEXT)]
    inputs, following = torch.zeros(len(rows), CONTEXT, dtype=torch.int64), torch.full((len(rows), CONTEXT), PADDING)
    for row, words in enumerate(rows):
        inputs[row, : len(words) - 1] = torch.tensor(words[:-1])
        following[row, : len(words) - 1] = torch.tensor(words[1:])
    return inputs, following


def pretrain(model: nn.Module, inputs: Tensor, following: Tensor, steps: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        rows = torch.randint(len(inputs), (8,))
        optimizer.zero_grad()
        logits = model(inputs[rows]).flatten(0, -2)
        _, gradient = fa.asd_loss_and_grad(logits, None, following[rows].flatten(), None, asd_weight=0.0)
        logits.backward(gradient)
        optimizer.step()


def train_client(global_model: nn.Module, inputs: Tensor, following: Tensor, asd_weight: float) -> nn.Module:
    """Three epochs over the client's passages.

    A cache would hold 32,000 numbers for every word: the teacher runs in every step instead.  `asd_loss_and_grad`
    builds no graph behind the logits, so nothing else of their size is kept than their gradient.
    """
    prior = fa.label_prior(following.flatten(), VOCABULARY)  # how often each word follows, over all passages
    model = copy.deepcopy(global_model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(3):
        for rows in torch.randperm(len(inputs)).split(8):
            with torch.no_grad():
                teacher = global_model(inputs[rows]).flatten(0, -2)  # every position is a row of the batch
            logits = model(inputs[rows]).flatten(0, -2)
            _, gradient = fa.asd_loss_and_grad(logits, teacher, following[rows].flatten(), prior, asd_weight=asd_weight)
            optimizer.zero_grad()
            logits.backward(gradient)
            optimizer.step()
    return model


@torch.no_grad()
def cross_entropy(model: nn.Module, inputs: Tensor, following: Tensor) -> float:
    losses = [
        F.cross_entropy(model(x).flatten(0, -2), y.flatten(), reduction="sum")
        for x, y in zip(inputs.split(16), following.split(16), strict=True)
    ]
    return float(sum(losses)) / int((following != PADDING).sum())


def main() -> None:
    torch.manual_seed(0)
    numbers: dict[str, int] = {}
    chapter = passages(numbers, topics[CHAPTER])
    others = passages(numbers, "\n\n".join(text for name, text in sorted(topics.items()) if name != CHAPTER))
    held_back = [[x[::20] for x in part] for part in (chapter, others)]
    train = [[x[torch.arange(len(x)) % 20 != 0] for x in part] for part in (chapter, others)]
    print(f"{len(numbers)} words of a vocabulary of {VOCABULARY}; the client has {len(train[0][0])} passages")

    global_model = LanguageModel()
    pretrain(global_model, *(torch.cat(parts) for parts in zip(*train, strict=True)), steps=150)
    global_model.eval()

    def show(name: str, model: nn.Module) -> None:
        mine, rest = (cross_entropy(model, *part) for part in held_back)
        print(f"{name}: own chapter {mine:.2f}, the others {rest:.2f}")

    show("global model", global_model)
    for name, asd_weight in (("cross-entropy", 0.0), ("cross-entropy + ASD", 1.0)):
        show(name, train_client(global_model, *train[0], asd_weight))


if __name__ == "__main__":
    main()

"""torch.compile of model and loss together, as one graph without breaks.

python compiled.py
"""

import copy

import torch
from task import compare
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import fedasd_fast as fa


def train(global_model: nn.Module, dataset: Dataset, asd_weight: float) -> nn.Module:
    numbered = fa.with_rows(dataset)
    cache = fa.TeacherCache.build(global_model, numbered)
    loss_fn = fa.ASDLoss(asd_weight)
    model = copy.deepcopy(global_model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @torch.compile(fullgraph=True)  # an error if any part of it could not be compiled
    def loss_of(x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        return loss_fn(model(x), cache[rows], y)

    for _ in range(10):
        # drop_last: every batch size is a graph of its own
        for x, y, rows in DataLoader(numbered, batch_size=20, shuffle=True, drop_last=True):
            optimizer.zero_grad()
            loss_of(x, y, rows).backward()
            optimizer.step()
    return model


if __name__ == "__main__":
    compare(train)

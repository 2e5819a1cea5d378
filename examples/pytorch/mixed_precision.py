"""Automatic mixed precision: bfloat16 on a CPU, float16 with a loss scale on a GPU.

    python mixed_precision.py

The student's logits come out of autocast in half precision.  The loss computes in float32 and returns float32, inside
autocast or outside.
"""

import copy

import torch
from task import compare
from torch import nn
from torch.utils.data import DataLoader, Dataset

import fedasd_fast as fa

DEVICE, DTYPE = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.bfloat16)


def train(global_model: nn.Module, dataset: Dataset, asd_weight: float) -> nn.Module:
    model = copy.deepcopy(global_model).to(DEVICE)
    numbered = fa.with_rows(dataset)
    with torch.autocast(DEVICE, DTYPE):
        cache = fa.TeacherCache.build(model, numbered)  # on the model's device
    loss_fn = fa.ASDLoss(asd_weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(DEVICE, enabled=DEVICE == "cuda")
    for _ in range(10):
        for x, y, rows in DataLoader(numbered, batch_size=20, shuffle=True):
            x, y, rows = (tensor.to(DEVICE) for tensor in (x, y, rows))
            optimizer.zero_grad()
            with torch.autocast(DEVICE, DTYPE):
                logits = model(x)
                loss = loss_fn(logits, cache[rows], y)
            assert (logits.dtype, loss.dtype) == (DTYPE, torch.float32)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    return model.cpu()


if __name__ == "__main__":
    compare(train, f"{DTYPE} on {DEVICE}: ")

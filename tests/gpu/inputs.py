"""Shapes that take each way through the kernels, and the teacher as they take it."""

import torch

import fedasd_fast as fa
from tests.conftest import client_dim

# From one block for a whole batch to several blocks a client, which meet by stamps (cached teacher) or at a grid
# barrier (raw logits); rows shared by 4 lanes up to a whole block; more clients than the GPU holds blocks.
SHAPES = [(50, 10), (5000, 10), (10, 1000), (300, 1000), (64, 4099), (3, 200, 100), (2000, 70, 40)]
TEACHERS = ["raw", "cached", "log_rows"]


def fused(batch, *weights, **keywords):
    student = next(iter(batch))
    return fa.asd_loss_and_grad(*batch, *weights, implementation="fused", client_dim=client_dim(student), **keywords)


def teacher_of(batch, kind, dtype=None, **key):
    """What goes where teacher_logits and label_prior go; a cache holds the rows in another order than the batch."""
    if kind == "raw":
        return batch.teacher, batch.prior
    order = torch.rand(batch.targets.shape, generator=torch.Generator().manual_seed(0)).argsort(-1)
    order = order.to(batch.targets.device)
    rows = batch.teacher.gather(-2, order.unsqueeze(-1).expand(batch.teacher.shape))
    labels = batch.targets.gather(-1, order)
    dtype = dtype or (torch.float64 if batch.student.dtype == torch.float64 else torch.float32)
    cache = fa.TeacherCache.from_logits(
        rows, labels, batch.prior, dtype=dtype, log_rows=kind == "log_rows", client_dim=batch.client_dim, **key
    )
    return cache[order.argsort(-1)], None

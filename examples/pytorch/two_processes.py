"""DistributedDataParallel over two processes: the same as one process with the whole batch.

    python -m torch.distributed.run --nproc-per-node=2 two_processes.py

ASD normalises its weights over the rows of a call.  Each process has half of a batch, so each is given the normaliser
of the whole one, by an all-reduce of two numbers; the average that DDP takes is then exact.
"""

import copy

import torch
import torch.distributed as dist
from task import ASD_WEIGHT, accuracy, client_dataset, make_global_model
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

import fedasd_fast as fa

BATCH = 20


def batches(samples: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)  # alike on all ranks
    orders = [torch.randperm(samples, generator=generator) for _ in range(10)]
    return [rows for order in orders for rows in order.split(BATCH) if len(rows) == BATCH]


def train(global_model: nn.Module, dataset: Dataset, rank: int, ranks: int) -> nn.Module:
    images, targets = dataset.tensors
    cache = fa.TeacherCache.build(global_model, dataset)
    model = copy.deepcopy(global_model)
    student = DistributedDataParallel(model) if ranks > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches(len(targets)):
        rows = batch[rank::ranks]
        group = dist.group.WORLD if ranks > 1 else None
        normalizer = fa.alpha_normalizer(cache[rows], group=group)
        loss = fa.asd_objective(
            student(images[rows]), cache[rows], targets[rows], None, ASD_WEIGHT, alpha_normalizer=normalizer
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def main() -> None:
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    global_model, dataset = make_global_model(), client_dataset()
    together = train(global_model, dataset, rank, ranks)
    if rank == 0:
        alone = train(global_model, dataset, 0, 1)
        difference = max(
            (a - b).abs().max().item() for a, b in zip(alone.parameters(), together.parameters(), strict=True)
        )
        print(f"one process {accuracy(alone):.1f} %, {ranks} processes {accuracy(together):.1f} %; "
              f"largest difference of a parameter {difference:.1e}")  # fmt: skip
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

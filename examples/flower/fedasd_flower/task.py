"""The task: handwritten digits of clients with different labels, a small network, and a client's local training."""

import copy
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

import fedasd_fast as fa

CLASSES = 10
AUGMENT = ("none", "round", "batch")
load_digits = cache(lambda: fa.data.load_dataset("digits"))  # comes with scikit-learn: nothing is fetched


def make_model(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(16 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, CLASSES)),
    )


def client_samples(client: int, clients: int, delta: float, seed: int) -> tuple[Tensor, Tensor]:
    """Images [N, 1, 8, 8] and labels [N] of one client of a Dirichlet partition."""
    train = load_digits().train
    parts = fa.data.partition(train.targets, CLASSES, clients, f"dirichlet_{delta}", np.random.default_rng(seed))
    return train.inputs[parts[client]] / 255, train.targets[parts[client]]


def shifted(images: Tensor) -> Tensor:
    """Each image moved by up to one pixel in both directions."""
    padded = nn.functional.pad(images, (1, 1, 1, 1))
    windows = padded.unfold(2, 8, 1).unfold(3, 8, 1)  # [N, 1, 3, 3, 8, 8]
    down, right = torch.randint(3, (2, len(images)))
    return windows[torch.arange(len(images)), :, down, right]


def train_client(model: nn.Module, images: Tensor, targets: Tensor, *, asd_weight: float, augment: str,
                 epochs: int, batch_size: int, lr: float) -> None:  # fmt: skip
    """Local epochs from the global model, which is also the teacher.

    augment: "none", or "round": one view of each image a round, so that the teacher runs once, into a cache; or
    "batch": a new view every time, which the teacher has to see as well.
    """
    if augment not in AUGMENT:
        raise ValueError(f"augment = {augment!r}; expected one of {', '.join(AUGMENT)}")
    prior = fa.label_prior(targets, CLASSES)
    loss_fn = fa.ASDLoss(asd_weight, prior)  # cross-entropy + asd_weight x ASD
    teacher = copy.deepcopy(model).eval()
    if augment == "round":
        images = shifted(images)
    known = fa.TeacherCache.build(teacher, images, targets, prior) if augment != "batch" else None
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(images)).split(batch_size):
            if known is not None:
                x, teacher_logits = images[rows], known[rows]
            else:
                x = shifted(images[rows])
                with torch.no_grad():
                    teacher_logits = teacher(x)
            optimizer.zero_grad()
            loss_fn(model(x), teacher_logits, targets[rows]).backward()
            optimizer.step()


@torch.no_grad()
def accuracy(model: nn.Module) -> float:
    """On the test images, which all labels have alike, in percent."""
    test = load_digits().test
    return 100 * (model.eval()(test.inputs / 255).argmax(1) == test.targets).double().mean().item()

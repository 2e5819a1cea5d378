"""The workloads that every contender trains: data, model and settings.

Imports only numpy and torch, so that it works in the venv of any contender.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

TEST_SAMPLES = 500
LR, WEIGHT_DECAY, CLIP_NORM = 0.1, 1e-3, 10.0
ASD_WEIGHT, TEMPERATURE = 30.0, 2.0


@dataclass(frozen=True)
class Workload:
    title: str
    clients: int
    samples: int  # of each client
    cohort: int  # clients a round
    epochs: int
    batch: int
    shape: tuple[int, ...]
    classes: int
    asd: bool = False

    @property
    def steps(self) -> int:
        """Local steps in a round."""
        return self.cohort * self.epochs * math.ceil(self.samples / self.batch)


IMAGE = (3, 32, 32)
WORKLOADS = {
    "W1": Workload("the paper's CIFAR CNN, FedAvg", 100, 500, 10, 1, 50, IMAGE, 10),
    "W2": Workload("MLP 64-128-64-10, FedAvg", 500, 20, 50, 5, 10, (64,), 10),
    "W3": Workload("the paper's CIFAR CNN, FedAvg + 30 ASD", 500, 100, 5, 5, 50, IMAGE, 100, asd=True),
}


def build_model(workload: Workload) -> nn.Module:
    """With the same initial parameters for all contenders."""
    torch.manual_seed(0)
    if len(workload.shape) == 3:
        return nn.Sequential(
            *(nn.Conv2d(3, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(64, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
            nn.Flatten(),
            *(nn.Linear(64 * 5 * 5, 384), nn.ReLU()),
            *(nn.Linear(384, 192), nn.ReLU()),
            nn.Linear(192, workload.classes),
        )
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise((*workload.shape, 128, 64)):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(64, workload.classes))


@dataclass(frozen=True)
class Data:
    inputs: Tensor  # float32 [clients, samples, ...]
    targets: Tensor  # int64 [clients, samples]
    test_inputs: Tensor
    test_targets: Tensor

    def test_loss(self, model: nn.Module) -> float:
        with torch.inference_mode():
            return float(F.cross_entropy(model(self.test_inputs), self.test_targets))


def save_data(workload: Workload, folder: Path, seed: int = 0) -> None:
    """Noise around one centre for each class, so that there is something to learn."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((workload.classes, *workload.shape), dtype=np.float32)
    for name, shape in (("train", (workload.clients, workload.samples)), ("test", (TEST_SAMPLES,))):
        targets = random.integers(workload.classes, size=shape)
        inputs = random.standard_normal((*shape, *workload.shape), dtype=np.float32)
        for part, labels in zip(inputs, targets, strict=True):  # bit by bit: as a whole it would take twice the memory
            part += 0.5 * centres[labels]
        np.save(folder / f"{name}_inputs.npy", inputs)
        np.save(folder / f"{name}_targets.npy", targets)


def load_data(folder: Path | str) -> Data:
    """Mapped from the files: all contenders share one copy in memory."""
    names = ("train_inputs", "train_targets", "test_inputs", "test_targets")
    # Copy on write, because torch warns of arrays that cannot be written to; nobody writes.
    return Data(*(torch.from_numpy(np.load(Path(folder) / f"{name}.npy", mmap_mode="c")) for name in names))

"""What all scripts here share: a global model, a client that has mostly two digits, and the accuracy on all digits."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import fedasd_fast as fa

CLASSES, ASD_WEIGHT = 10, 3.0


def pixels(part: str) -> tuple[Tensor, Tensor]:
    """Images [N, 64] and labels [N] of scikit-learn's digits."""
    samples = getattr(fa.data.load_dataset("digits"), part)
    return samples.inputs.flatten(1) / 255, samples.targets


def client_dataset() -> TensorDataset:
    """Half of the zeros and ones, and a few of every other digit."""
    images, targets = pixels("train")
    rows = torch.arange(500, len(targets))
    mine = (targets[rows] < 2) | (rows % 20 == 0)
    return TensorDataset(images[rows[mine]], targets[rows[mine]])


def make_global_model() -> nn.Module:
    """Trained for a while on samples that the client does not have."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    images, targets = (x[:500] for x in pixels("train"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), targets).backward()
        optimizer.step()
    return model


@torch.no_grad()
def accuracy(model: nn.Module) -> float:
    images, targets = pixels("test")
    return 100 * (model(images).argmax(1) == targets).double().mean().item()


def compare(train: Callable[[nn.Module, Dataset, float], nn.Module], title: str = "") -> None:
    """Trains the client without and with ASD; `train` takes the global model, the client's dataset and lambda."""
    global_model, dataset = make_global_model(), client_dataset()
    results = [accuracy(train(global_model, dataset, weight)) for weight in (0.0, ASD_WEIGHT)]
    print(f"{title}global model {accuracy(global_model):.1f} %, client {results[0]:.1f} %, with ASD {results[1]:.1f} %")

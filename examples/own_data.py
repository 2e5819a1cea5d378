"""Data of your own in a simulation: arrays that are divided among clients, or clients that make their samples.

    python examples/own_data.py

`PartitionedData` takes a dataset in memory and the row numbers of each client.  `FederatedData` is the interface below
it: implement `client(k)` where samples come from files, a database or, as here, a generator.  Either goes to
`fa.simulate(..., data=...)`; `clients` in the settings must be their number.
"""

import numpy as np
import torch

import fedasd_fast as fa
from fedasd_fast.data import Dataset, FederatedData, PartitionedData, Samples

CLASSES, FEATURES = 4, 8


def make_samples(count: int, seed: int, noise: float = 1.0) -> Samples:
    """Inputs [n, features] of any float type, or images as uint8 [n, C, H, W]; labels int64 [n]."""
    random = np.random.default_rng(seed)
    targets = random.integers(CLASSES, size=count)
    inputs = 2.0 * np.eye(CLASSES, FEATURES)[targets] + noise * random.standard_normal((count, FEATURES))
    return Samples(torch.from_numpy(inputs).float(), torch.from_numpy(targets))


def divided_by_label() -> PartitionedData:
    """2,000 samples in memory: each of 40 clients has 40 samples of one label, or two, and ten of any label."""
    dataset = Dataset("mine", train=make_samples(2000, seed=0), test=make_samples(1000, seed=1), num_classes=CLASSES)
    labels = dataset.train.targets.numpy()
    mixed = np.arange(400)  # the first 400 as they come, the others sorted by label
    rest = 400 + np.argsort(labels[400:], kind="stable")
    parts = [np.concatenate(pair) for pair in zip(np.split(mixed, 40), np.split(rest, 40), strict=True)]
    return PartitionedData(dataset, parts)


class Sensors(FederatedData):
    """Client k is a sensor with its own level of noise.  Nothing is kept: `client` depends on k alone."""

    def __init__(self, count: int) -> None:
        self.name, self.num_classes, self.input_shape = "sensors", CLASSES, (FEATURES,)
        self.sizes = torch.full((count,), 50)
        self.test = make_samples(1000, seed=1)

    def client(self, k: int) -> Samples:
        return make_samples(50, seed=100 + k, noise=0.5 + k / len(self.sizes))

    @property
    def nbytes(self) -> int:
        return self.test.nbytes


def main() -> None:
    for data in (divided_by_label(), Sensors(1000)):
        settings = dict(clients=data.num_clients, participation=20 / data.num_clients, rounds=20, local_epochs=2)
        result = fa.simulate(
            settings | dict(method="fedavg+asd", asd={"weight": 3.0}, executor="stacked", eval_models=["cloud"]),
            data=data,
        )
        labels, accuracy = data.label_counts(0).tolist(), result.metrics[-1]["acc_cloud"]
        print(f"{data.name}: {data.num_clients} clients, labels of the first {labels}, accuracy {accuracy:.1f} %")


if __name__ == "__main__":
    main()

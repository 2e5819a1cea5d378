"""FedAvg and FedAvg + ASD with pfl on scikit-learn's digits, three seeds of each: prints a table.

python train.py [--rounds 20] [--seeds 0 1 2] [--asd-weight 3]
"""

import argparse
import logging
import statistics

import numpy as np
import torch
from fedasd_pfl import FedASD, FedASDParams
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchDataDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import fedasd_fast as fa

CLASSES, USERS, COHORT, DELTA = 10, 20, 5, 0.1


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, CLASSES))

    def loss(self, x: Tensor, y: Tensor, *_: Tensor) -> Tensor:  # pfl asks for both, and evaluates users with metrics
        return cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor, *_: Tensor) -> dict[str, Weighted]:
        logits = self(x)
        return {
            "loss": Weighted(cross_entropy(logits, y, reduction="sum").item(), len(y)),
            "accuracy": Weighted((logits.argmax(1) == y).sum().item(), len(y)),
        }


class LastAccuracy(TrainingProcessCallback):
    """On the test images, after every round."""

    def __init__(self, images: Tensor, targets: Tensor) -> None:
        self.images, self.targets, self.percent = images, targets, float("nan")

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        accuracy = model.pytorch_model.metrics(self.images, self.targets)["accuracy"]
        self.percent = 100 * accuracy.overall_value
        return False, Metrics([("test accuracy", accuracy)])


def run(seed: int, asd_weight: float, rounds: int) -> float:
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002  pfl's samplers draw from the global generator
    digits = fa.data.load_dataset("digits")
    train, test = digits.train, digits.test
    parts = fa.data.partition(train.targets, CLASSES, USERS, f"dirichlet_{DELTA}", np.random.default_rng(seed))
    users = [
        PyTorchDataDataset(
            fa.with_rows(TensorDataset(train.inputs[rows] / 255, train.targets[rows])), user_id=str(k), shuffle=True
        )
        for k, rows in enumerate(parts)
    ]
    users_data = FederatedDataset(users.__getitem__, get_user_sampler("random", list(range(USERS))))
    net = Net()
    model = PyTorchModel(net, torch.optim.SGD, central_optimizer=torch.optim.SGD(net.parameters(), lr=1.0))
    last = LastAccuracy(test.inputs / 255, test.targets)
    FedASD().run(
        FedASDParams(
            central_num_iterations=rounds, evaluation_frequency=rounds, train_cohort_size=COHORT, val_cohort_size=None,
            asd_weight=asd_weight,
        ),
        SimulatedBackend(users_data, users_data, postprocessors=[WeightByDatapoints()]),
        model,
        NNTrainHyperParams(local_num_epochs=5, local_learning_rate=0.1, local_batch_size=20),
        callbacks=[last],
        send_metrics_to_platform=False,
    )  # fmt: skip
    return last.percent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--asd-weight", type=float, default=3.0)
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # pfl tells every round's metrics
    torch.set_num_threads(1)
    print("| accuracy, % | " + " | ".join(f"seed {seed}" for seed in options.seeds) + " | mean |")
    print("|---|" + "---:|" * (len(options.seeds) + 1))
    for name, asd_weight in (("FedAvg", 0.0), ("FedAvg + ASD", options.asd_weight)):
        found = [run(seed, asd_weight, options.rounds) for seed in options.seeds]
        print(f"| {name} | " + " | ".join(f"{x:.1f}" for x in [*found, statistics.mean(found)]) + " |", flush=True)


if __name__ == "__main__":
    main()

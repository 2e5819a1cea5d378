"""Checks whether one class dominates a model's predictions, and how local training changes that.

    python -m fedasd_fast.analysis.dominant_class RUN

For the model that the server would send next: the class that it predicts most often, and how far the logit of that
class is above the mean of the other logits, on samples of other classes.  Then how much one round of local training
with different methods changes this lead.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..common.schema import ConfigError
from ..data import DataError
from ..simulation.client.update import train_client
from ..simulation.cohort import ClientTask
from ..simulation.errors import SimulationError
from ..simulation.system.threads import threads
from .forgetting import trainer_for
from .loaded_run import LoadedRun, load_run
from .selection import select_clients, training_samples

METHOD_VARIANTS: dict[str, tuple[str, Literal["adaptive", "uniform"]]] = {  # method, weighting of its distillation
    "FedAvg": ("fedavg", "uniform"),
    "FedAvg+ASD": ("fedavg+asd", "adaptive"),
    "FedAvg+ASD, uniform weights": ("fedavg+asd", "uniform"),
    "FedNTD": ("fedntd", "uniform"),
    "FedNTD+ASD": ("fedntd+asd", "adaptive"),
}


@dataclass(frozen=True)
class DominantClass:
    round: int
    label: int  # the class that is predicted most often
    predicted: int  # samples for which it is
    samples: int
    lead: float  # its logit minus the mean of the others, on samples of other classes
    changes: dict[str, tuple[float, float]]  # of the lead in one round, by variant: mean and standard error

    def __str__(self) -> str:
        return "\n".join(
            [
                f"after round {self.round}: class {self.label} is predicted for {self.predicted} of {self.samples} "
                "training samples",
                f"its logit is {self.lead:.2f} above the mean of the others, on samples of other classes; change in "
                "one round of local training:",
                *(f"  {name:<30}{mean:+.2f} ± {error:.2f}" for name, (mean, error) in self.changes.items()),
            ]
        )


def dominant_class(run: LoadedRun, *, samples: int = 1000, clients: int = 20, seed: int = 0) -> DominantClass:
    context = run.context
    inputs, targets = training_samples(run, samples, seed)
    model, start = context.trainer.model, run.state.cloud

    def logits(vector: Tensor) -> Tensor:
        with model.holding(vector) as module, torch.inference_mode():
            module.eval()
            out: Tensor = module(inputs)
            return out

    with threads(context.parallelism.threads):
        predictions = torch.bincount(logits(start).argmax(1))
        label = int(predictions.argmax())

        def lead(vector: Tensor) -> Tensor:
            z = logits(vector)[targets != label]
            others = (z.sum(1) - z[:, label]) / (z.shape[1] - 1)
            return (z[:, label] - others).mean()

        before, changes = lead(start), {}
        server, epochs = context.experiment.server(run.state), context.experiment.config.local_epochs
        ids = select_clients(context.experiment.data, clients, seed)
        for name, (method, weighting) in METHOD_VARIANTS.items():
            trainer = trainer_for(context, method, weighting)
            updates = (train_client(trainer, context.records, server, ClientTask(k, epochs, 1.0)) for k in ids)
            change = torch.stack([lead(update.run.end) - before for update in updates])
            changes[name] = float(change.mean()), float(change.std()) / len(change) ** 0.5
    return DominantClass(run.state.round, label, int(predictions[label]), len(targets), float(before), changes)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fedasd_fast.analysis.dominant_class", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("run", metavar="RUN", help="the run directory; it must have a checkpoint")
    parser.add_argument("--samples", type=int, default=1000, help="training samples to use (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=20, help="clients to train (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the random selection (default: %(default)s)")
    parser.add_argument("--trust-code", action="store_true", help="run the model or method that the run names")
    options = parser.parse_args(argv)
    try:
        run = load_run(options.run, trust_code=options.trust_code)
        print(dominant_class(run, samples=options.samples, clients=options.clients, seed=options.seed))
    except (ConfigError, DataError, SimulationError) as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())

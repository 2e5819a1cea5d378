"""python docs/results/takeover.py RUN: does one class take the model over, and do clients take it back?

Of the model that the server would send next: the class that it predicts most, and how far that class's logit is above
the mean of the others, on samples of other classes.  Then how one round of local training changes this lead.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor

from fedasd_fast.analysis.forgetting import trainer_for
from fedasd_fast.analysis.label_groups import chosen
from fedasd_fast.analysis.loaded_run import OpenedRun, opened
from fedasd_fast.analysis.selection import training_samples
from fedasd_fast.simulation.client.update import train_client
from fedasd_fast.simulation.cohort import ClientTask
from fedasd_fast.simulation.system.threads import threads

SAMPLES, CLIENTS, SEED = 1000, 20, 0
VARIANTS = {  # method, weights of its distillation
    "FedAvg": ("fedavg", "uniform"),
    "FedAvg+ASD": ("fedavg+asd", "adaptive"),
    "FedAvg+ASD, uniform weights": ("fedavg+asd", "uniform"),
    "FedNTD": ("fedntd", "uniform"),
    "FedNTD+ASD": ("fedntd+asd", "adaptive"),
}


def main(run: OpenedRun) -> None:
    inputs, targets = training_samples(run, SAMPLES, SEED)
    model, start = run.context.trainer.model, run.state.cloud

    def logits(vector: Tensor) -> Tensor:
        with model.holding(vector) as module, torch.inference_mode():
            module.eval()
            out: Tensor = module(inputs)
            return out

    found = torch.bincount(logits(start).argmax(1))
    top = int(found.argmax())

    def lead(vector: Tensor) -> Tensor:
        z = logits(vector)[targets != top]
        others = (z.sum(1) - z[:, top]) / (z.shape[1] - 1)
        return (z[:, top] - others).mean()

    before = lead(start)
    print(
        f"after round {run.state.round}: class {top} is predicted for {found[top]} of {len(targets)} training samples"
    )
    print(
        f"its logit is {before:.2f} above the mean of the others, where it is wrong; after one round of local training"
    )
    experiment, records = run.context.experiment, run.context.records
    server, epochs = experiment.server(run.state), experiment.config.local_epochs
    for name, (method, weighting) in VARIANTS.items():
        trainer = trainer_for(run.context, method, weighting)
        changes = torch.stack(
            [
                lead(train_client(trainer, records, server, ClientTask(k, epochs, 1.0)).run.end) - before
                for k in chosen(experiment.data, CLIENTS, SEED)
            ]
        )
        print(f"  {name:<30}{changes.mean():+.2f} ± {changes.std() / len(changes) ** 0.5:.2f}")


if __name__ == "__main__":
    run = opened(sys.argv[1])
    with threads(run.context.parallelism.threads):
        main(run)

"""Local training of one client: the hot path.

The order of samples, their views and the teacher's outputs are fixed before an epoch's steps begin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ...algorithms import Client, Correction, Server
from ...common.randomness import Stream, torch_seeded
from ..errors import Interrupted
from ..experiment import Experiment
from .cuda_graph import CudaGraphStep
from .flat_model import FlatModel, channels_last
from .local_step import LocalStep
from .samples import LocalSamples
from .teacher import teacher_outputs


@dataclass(frozen=True)
class LocalRun:
    end: Tensor  # [P] where training ended: the model's own vector, valid until it trains again
    losses: Tensor  # [steps]
    samples: int  # that training went through, epochs counted
    skipped: int = 0  # steps whose gradient overflowed in float16


class Trainer:
    def __init__(self, experiment: Experiment, model: FlatModel, stop: Callable[[], bool] = lambda: False) -> None:
        """`stop` is asked before every local step."""
        self.experiment, self.model, self.stop = experiment, model, stop
        config = experiment.config
        self.distillation = config.distillation
        step = CudaGraphStep(config, model, experiment.data) if config.cuda_graph else LocalStep(config, model)
        self.step: LocalStep = step

    def train(
        self, server: Server, client: Client, correction: Correction, epochs: int, losses: list[Tensor]
    ) -> LocalRun:
        """From server.model, `epochs` over the client's samples.  `losses` is filled step by step."""
        self.model.vector.copy_(server.model)
        self.model.module.train()
        with torch_seeded(self.experiment.config.seed, Stream.MODULE, server.round, client.id):
            samples = self._epochs(server, client, correction, epochs, losses)
        skipped = 0 if self.step.skipped is None else int(self.step.skipped)
        return LocalRun(self.model.vector, torch.stack(losses), samples, skipped)

    def _epochs(self, server: Server, client: Client, correction: Correction, epochs: int, losses: list[Tensor]) -> int:
        config, data, step = self.experiment.config, self.experiment.data, self.step
        step.begin(correction, loss_scale=server.loss_scale)
        samples = LocalSamples(config, data, server.round, client.id, self.model.vector)
        targets, term = samples.targets, self.distillation
        cached = config.teacher != "recompute"
        if term and cached:
            step.set_teacher(teacher_outputs(self.model, samples.inputs, targets, data.num_classes, term))
        for _ in range(epochs):
            view, order = samples.view(), samples.order()
            if term and not cached:
                with self.model.holding(server.model):
                    step.set_teacher(teacher_outputs(self.model, view, targets, data.num_classes, term))
            parts = (channels_last(view[order]), targets[order], order)
            for x, y, rows in zip(*(part.split(config.batch_size) for part in parts), strict=True):
                if self.stop():
                    raise Interrupted("stopped")
                losses.append(step.run(x, y, rows, server.lr))
        return epochs * len(targets)

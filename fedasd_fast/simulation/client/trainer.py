"""One client's local training: the hot path.

The order of samples, their views and the teacher's outputs are fixed before an epoch's steps begin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ...algorithms import Client, Correction, Server
from ...common.randomness import Stream, torch_seeded
from ...config import Config
from ...data.federated import FederatedData
from ...loss.teacher_cache import TeacherCache
from ..errors import Interrupted
from .cuda_graph import CapturedSteps
from .flat_model import FlatModel, arranged
from .local_step import Steps
from .samples import LocalSamples


@dataclass(frozen=True)
class LocalRun:
    end: Tensor  # [P] where training ended: the model's own vector, valid until it trains again
    losses: Tensor  # [steps]
    samples: int  # that training went through, epochs counted


class Trainer:
    def __init__(
        self, config: Config, data: FederatedData, model: FlatModel, stop: Callable[[], bool] = lambda: False
    ) -> None:
        self.config, self.data, self.model, self.stopping = config, data, model, stop
        self.distillation = config.distillation
        self.steps = CapturedSteps(config, model, data) if config.cuda_graph else Steps(config, model)

    def train(
        self, server: Server, client: Client, correction: Correction, epochs: int, losses: list[Tensor]
    ) -> LocalRun:
        """From server.model, `epochs` over the client's samples.  `losses` is filled step by step."""
        self.model.vector.copy_(server.model)
        self.model.module.train()
        with torch_seeded(self.config.seed, Stream.MODULE, server.round, client.id):
            samples = self._epochs(server, client, correction, epochs, losses)
        return LocalRun(self.model.vector, torch.stack(losses), samples)

    def _epochs(self, server: Server, client: Client, correction: Correction, epochs: int, losses: list[Tensor]) -> int:
        config, steps = self.config, self.steps
        steps.begin(correction, server.lr)
        samples = LocalSamples(config, self.data, server.round, client.id, self.model.vector)
        targets = samples.targets
        cached = config.teacher != "recompute"
        if self.distillation and cached:
            steps.teach(self._teach(samples.inputs, targets))
        for _ in range(epochs):
            view, order = samples.view(), samples.order()
            if self.distillation and not cached:
                with self.model.holding(server.model):
                    steps.teach(self._teach(view, targets))
            parts = (arranged(view[order]), targets[order], order)
            batches = zip(*(part.split(config.batch_size) for part in parts), strict=True)
            for x, y, rows in batches:
                if self.stopping():
                    raise Interrupted("stopped")
                losses.append(steps.run(x, y, rows))
        return epochs * len(targets)

    def _teach(self, inputs: Tensor, targets: Tensor) -> TeacherCache:
        """The teacher's outputs, from the model as it stands, in eval mode."""
        assert self.distillation is not None
        dtype = self.model.vector.dtype
        shares = label_shares(targets, self.data.num_classes, dtype)
        return TeacherCache.build(
            self.model.module, arranged(inputs), targets, shares, dtype=dtype, **self.distillation.teacher_options()
        )


def label_shares(targets: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    """[classes].  bincount would wait for a GPU, to know the highest label."""
    counts = torch.zeros(classes, dtype=dtype, device=targets.device)
    return counts.scatter_add_(0, targets, torch.ones_like(targets, dtype=dtype)) / len(targets)

"""One client's local training: the hot path.

The order of samples, their views and the teacher's outputs are fixed before an epoch's steps begin; a step then is
forward, loss and its gradient (one fused call), backward, update.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..algorithms import Client, Correction, Server
from ..config import Config
from ..data.federated import FederatedData
from ..loss.cache import TeacherCache, TeacherRows
from ..loss.functional import asd_loss_and_grad
from ..randomness import Stream, torch_seeded
from . import update
from .errors import ClientError, Interrupted
from .flat import FlatModel, arranged
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
        self.config, self.data, self.model, self._stop = config, data, model, stop
        self.distillation = config.distillation
        self._options = self.distillation.options() if self.distillation else {}

    def train(
        self, server: Server, client: Client, correction: Correction, epochs: int, losses: list[Tensor]
    ) -> LocalRun:
        """From server.model, `epochs` over the client's samples.  `losses` is filled step by step."""
        self.model.vector.copy_(server.model)
        self.model.module.train()
        with torch_seeded(self.config.seed, Stream.MODULE, server.round, client.id):
            samples = self._epochs(server, client, correction, epochs, losses)
        trace = torch.stack(losses)
        bad = (~trace.isfinite()).nonzero()
        if len(bad):
            raise ClientError(client.id, server.round, int(bad[0]), f"the loss is {trace[bad[0]].item()}")
        return LocalRun(self.model.vector, trace, samples)

    def _epochs(self, server: Server, client: Client, correction: Correction, epochs: int, losses: list[Tensor]) -> int:
        config = self.config
        samples = LocalSamples(config, self.data, server.round, client.id, self.model.vector)
        targets = samples.targets
        cached = config.teacher != "recompute"
        teacher = self._teach(samples.inputs, targets) if self.distillation and cached else None
        velocity = torch.zeros_like(self.model.vector) if config.optimizer.momentum else None
        for _ in range(epochs):
            view, order = samples.view(), samples.order()
            if self.distillation and not cached:
                with self.model.holding(server.model):
                    teacher = self._teach(view, targets)
            parts = (arranged(view[order]), targets[order], order)
            batches = zip(*(part.split(config.batch_size) for part in parts), strict=True)
            for x, y, rows in batches:
                if self._stop():
                    raise Interrupted("stopped")
                losses.append(self._step(x, y, teacher[rows] if teacher else None, correction, velocity, server.lr))
        return epochs * len(targets)

    def _teach(self, inputs: Tensor, targets: Tensor) -> TeacherCache:
        """The teacher's outputs, from the model as it stands, in eval mode."""
        assert self.distillation is not None
        dtype = self.model.vector.dtype
        shares = torch.bincount(targets, minlength=self.data.num_classes).to(dtype) / len(targets)
        return TeacherCache.build(
            self.model.module, arranged(inputs), targets, shares, dtype=dtype, **self.distillation.teacher_options()
        )

    def _step(
        self,
        x: Tensor,
        y: Tensor,
        teacher: TeacherRows | None,
        correction: Correction,
        velocity: Tensor | None,
        lr: float,
    ) -> Tensor:
        w, g = self.model.vector, self.model.gradient
        loss = self._backward(x, y, teacher)
        if correction.rho:
            start = update.ascend(w, g, correction)
            self._backward(x, y, teacher)
            w.copy_(start)
        update.step(w, g, velocity, correction, self.config.optimizer, lr)
        return loss

    def _backward(self, x: Tensor, y: Tensor, teacher: TeacherRows | None) -> Tensor:
        """The loss; its gradient is left in model.gradient."""
        self.model.gradient.zero_()
        logits = self.model.module(x)
        if teacher is None:
            loss = F.cross_entropy(logits, y)
            loss.backward()
            return loss.detach()
        assert self.distillation is not None
        loss, gradient = asd_loss_and_grad(logits, teacher, y, None, self.distillation.weight, **self._options)
        logits.backward(gradient)
        return loss

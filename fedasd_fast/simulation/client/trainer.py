"""Local training of one client: the hot path.

The order of samples, their views and the teacher's outputs are fixed before an epoch's steps begin.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...algorithms import Client, Correction, Distillation, Server
from ...algorithms.hooks import STEP_HOOKS
from ...common.randomness import Stream, torch_seeded
from ...common.schema import ConfigError
from ...loss.teacher_cache import TeacherCache
from ..errors import Interrupted
from ..experiment import Experiment
from .cuda_graph import CudaGraphStep
from .extended_step import ExtendedStep
from .flat_model import FlatModel, channels_last
from .hook_errors import calling, vector_like
from .local_loss import LocalLoss
from .local_step import LocalStep, TrainableModel
from .samples import LocalSamples
from .step_terms import step_terms
from .teacher import outputs_from_logits, teacher_outputs


@dataclass(frozen=True)
class LocalRun:
    end: Tensor  # [N] where training ended: the model's own whole vector, valid until it trains again
    losses: Tensor  # [steps]
    samples: int  # that training went through, epochs counted
    skipped: int = 0  # steps whose gradient overflowed in float16
    dual: Tensor | None = None  # [P] of the method's perturbation, after the last step


class Trainer:
    def __init__(self, experiment: Experiment, model: FlatModel, stop: Callable[[], bool] = lambda: False) -> None:
        """`stop` is asked before every local step."""
        self.experiment, self.model, self.stop = experiment, model, stop
        config = experiment.config
        self.distillation, self.ascent = config.distillation, config.ascent_loss
        step = CudaGraphStep(config, model, experiment.data) if config.cuda_graph else self.local_step(model)
        self.step: LocalStep = step
        self._local_loss = LocalLoss(experiment.method, model) if "local_loss" in experiment.hooks else None
        self._teacher: tuple[Server, Tensor | None] | None = None  # of the last round that asked

    def local_step(self, model: TrainableModel) -> LocalStep:
        config, said = self.experiment.config, self.experiment.hooks & STEP_HOOKS
        if said and config.precision == "float16":  # their gradients are not scaled
            raise ConfigError(
                f"precision = float16, but {type(self.experiment.method).__name__} has {', '.join(sorted(said))}; use "
                "precision = bfloat16"
            )
        return ExtendedStep(config, model) if said else LocalStep(config, model)

    def teacher(self, server: Server) -> Tensor | None:
        """The vector [P] that clients distil from; None: they do not, in this round."""
        method = self.experiment.method
        if "teacher" not in self.experiment.hooks:
            return server.model
        if self._teacher is None or self._teacher[0] is not server:
            with calling(method, "teacher"):
                found = method.teacher(server)
                self._teacher = server, None if found is None else self._own(found, server)
        return self._teacher[1]

    def start(self, server: Server, client: Client) -> Tensor:
        """Where the client begins, [P]."""
        if "start" not in self.experiment.hooks:
            return server.model
        with calling(self.experiment.method, "start"):
            return self._own(self.experiment.method.start(server, client), server)

    def _own(self, found: Tensor, server: Server) -> Tensor:
        """What a hook returned, [P], with the client's own values of what stays with it."""
        return self.experiment.layout.personal(vector_like(found, server.model, "what it returned"), server.model)

    def train(
        self, server: Server, client: Client, correction: Correction, epochs: int, losses: list[Tensor]
    ) -> LocalRun:
        """`epochs` over the client's samples.  `losses` is filled step by step."""
        self.model.module.train()
        listening = self._local_loss.listening() if self._local_loss else nullcontext()
        with listening, torch_seeded(self.experiment.config.seed, Stream.MODULE, server.round, client.id):
            samples = self._epochs(server, client, correction, epochs, losses)
        step, skipped = self.step, 0 if self.step.skipped is None else int(self.step.skipped)
        perturbation = step.terms.perturbation if isinstance(step, ExtendedStep) else None
        dual = None if perturbation is None else perturbation.dual
        return LocalRun(self.model.whole, torch.stack(losses), samples, skipped, dual)

    def _epochs(self, server: Server, client: Client, correction: Correction, epochs: int, losses: list[Tensor]) -> int:
        config, data, step = self.experiment.config, self.experiment.data, self.step
        step.begin(correction, loss_scale=server.loss_scale)
        if isinstance(step, ExtendedStep):
            self._extend(step, server, client)
        samples = LocalSamples(config, data, server.round, client.id, self.model.vector)
        targets, teacher = samples.targets, self.teacher(server) if self.distils else None
        cached = config.teacher != "recompute"
        if teacher is not None and cached:
            self.model.load(teacher, server.statistics)
            self.set_teachers(step, samples.inputs, targets)
        self.model.load(self.start(server, client), server.statistics)
        for _ in range(epochs):
            view, order = samples.view(), samples.order()
            if teacher is not None and not cached:
                with self.model.holding(self.model.layout.whole(teacher, server.statistics)):
                    self.set_teachers(step, view, targets)
            parts = (channels_last(view[order]), targets[order], order)
            for x, y, rows in zip(*(part.split(config.batch_size) for part in parts), strict=True):
                if self.stop():
                    raise Interrupted("stopped")
                losses.append(step.run(x, y, rows, server.lr))
        return epochs * len(targets)

    @property
    def distils(self) -> bool:
        """Whether a teacher is needed."""
        return self.distillation is not None or self.ascent is not None

    def set_teachers(self, step: LocalStep, inputs: Tensor, targets: Tensor, logits: Tensor | None = None) -> None:
        """The outputs of the model as it stands, on one client's samples [N, ..] or on those of K clients; or, given
        their logits, of other models."""
        num_classes, stacked = self.experiment.data.num_classes, step.model.vector.dim() == 2

        def outputs(term: Distillation) -> TeacherCache:
            if logits is not None:
                return outputs_from_logits(logits, targets, num_classes, term, stacked)
            return teacher_outputs(self.model, inputs, targets, num_classes, term, stacked)

        if self.distillation is not None:
            step.set_teacher(outputs(self.distillation))
        if self.ascent is not None:
            assert isinstance(step, ExtendedStep)
            step.set_ascent_teacher(outputs(self.ascent))

    def _extend(self, step: ExtendedStep, server: Server, client: Client) -> None:
        terms = step_terms(self.experiment, server, client, self.model.vector)
        if self._local_loss is not None:
            self._local_loss.begin(server, client)
            terms = replace(terms, local_loss=self._local_loss)
        step.extend(terms)

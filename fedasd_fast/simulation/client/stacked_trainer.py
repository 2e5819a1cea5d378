"""Local training of K clients at once, on stacked parameters.

The smaller ones are padded: a missing sample has the label PADDING, and a client that has no batch in a step has the
learning rate 0, so it stays as it is.  Each client sees the batches that it would see alone, and each has its own norm,
loss and teacher weights.  What the steps of a client are is known before the first one: orders and learning rates are
laid out for all of them at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...algorithms import Server
from ...common.randomness import Stream, torch_seed
from ...data.host_to_device import send
from ..cohort import ClientTask, CohortTasks
from ..errors import Interrupted
from .cohort_clients import CohortClients, cohort_correction
from .cohort_samples import CohortSamples
from .extended_step import ExtendedStep
from .stacked_layers import StackedLayers
from .stacked_model import StackedModel
from .step_terms import stacked_terms, step_terms
from .teacher import PADDING, teacher_logits
from .trainer import LocalRun, Trainer


@dataclass(frozen=True)
class StackedRun:
    ends: Tensor  # [K, N] where training ended: the stack's own vectors if there are no running statistics
    losses: Tensor  # [K, steps]
    active: Tensor  # [K, steps] who had a batch
    samples: np.ndarray  # [K] that training went through, epochs counted
    distances: Tensor  # [K] of the ends from the server's model
    skipped: Tensor | None = None  # [K] steps whose gradient overflowed in float16; None: none
    duals: Tensor | None = None  # [K, P] of the method's perturbations

    @property
    def updates(self) -> Tensor:
        """[K] the steps that changed a client's model; at least 1."""
        steps = self.active.sum(1)
        return steps if self.skipped is None else (steps - self.skipped).clamp_(min=1)

    def client(self, k: int) -> LocalRun:
        skipped = 0 if self.skipped is None else int(self.skipped[k])
        dual = None if self.duals is None else self.duals[k]
        return LocalRun(self.ends[k], self.losses[k, self.active[k]], int(self.samples[k]), skipped, dual)


class StackedTrainer:
    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        vector = trainer.model.vector
        self._memory = vector.new_empty(2, 0, len(vector))  # of the stack, kept from group to group
        self._stack: StackedModel | None = None
        self._layers = StackedLayers.of(trainer.model.module)

    def stack_of(self, clients: int) -> StackedModel:
        if self._stack is None or len(self._stack) != clients:
            if self._memory.shape[1] < clients:
                self._memory = self._memory.new_empty(2, clients, self._memory.shape[2])
            vector, gradient = self._memory[:, :clients]
            self._stack = StackedModel(self._trainer.model, vector, gradient, self._layers)
        return self._stack

    def scratch(self, clients: int) -> Tensor:
        """[K, N] of memory for whoever wants it between runs."""
        stack = self.stack_of(clients)
        return stack.gradient if not stack.statistics.shape[1] else torch.empty_like(stack.whole)

    def train(self, server: Server, tasks: Sequence[ClientTask], clients: CohortClients) -> StackedRun:
        return _GroupRun(self._trainer, self.stack_of(len(tasks)), server, tasks, clients).train()


class _GroupRun:
    def __init__(
        self,
        trainer: Trainer,
        stack: StackedModel,
        server: Server,
        tasks: Sequence[ClientTask],
        clients: CohortClients,
    ) -> None:
        self._trainer, self._stack, self._server = trainer, stack, server
        personal = clients.servers(server)
        self._servers = personal or [server] * len(tasks)  # as each client sees it
        self._common_teacher = personal is None
        config, data, like = trainer.experiment.config, trainer.experiment.data, trainer.model.vector
        self._step, self._clients = trainer.local_step(stack), clients
        method, weight_decay = trainer.experiment.method, config.optimizer.weight_decay
        self._step.begin(*cohort_correction(method, server, clients, weight_decay, personal), server.loss_scale)
        if isinstance(self._step, ExtendedStep):
            pairs = zip(self._servers, clients, strict=True)
            terms = [step_terms(trainer.experiment, own, client, like) for own, client in pairs]
            self._step.extend(stacked_terms(terms, stack.vector))
        tasks = CohortTasks.of(tasks)
        self._samples = CohortSamples(config, data, server.round, tasks.clients, tasks.epochs, like)
        self._targets = self._samples.padded(self._samples.targets, PADDING)  # [K, N], or [K, N, T]

    def train(self) -> StackedRun:
        trainer, config, lr = self._trainer, self._trainer.experiment.config, self._server.lr
        teacher, cached = trainer.teacher(self._server) if trainer.distils else None, config.teacher != "recompute"
        trainer.model.module.train()
        if teacher is not None and self._common_teacher:  # a pass over all clients' samples, padding included
            trainer.model.load(teacher, self._server.statistics)
        counts = self._counts()  # [E, batches, K]
        active = counts > 0
        rates = None if active.all() else send(torch.from_numpy(active * lr), self._targets.device)
        samples = self._samples
        order = samples.padded_orders()  # [E, K, N]
        positions = order + torch.arange(len(self._stack), device=order.device).unsqueeze(1) * order.shape[2]
        labels = self._targets.flatten(0, 1)[positions]  # [E, K, N], or [E, K, N, T]
        inputs = samples.padded(samples.inputs)  # [K, N, ..]
        if teacher is not None and cached:
            self._set_teachers(inputs)
        self._start()
        losses: list[Tensor] = []  # [K] each
        for epoch in range(len(order)):
            if samples.changing:
                inputs = samples.padded(samples.view(epoch))
            if teacher is not None and not cached:
                self._set_teachers(inputs)
            x = inputs.flatten(0, 1).index_select(0, positions[epoch].flatten()).view_as(inputs)
            parts = [part.split(config.batch_size, 1) for part in (x, labels[epoch], order[epoch])]
            steps = zip(*parts, [lr] * active.shape[1] if rates is None else rates[epoch], counts[epoch], strict=True)
            for x, y, rows, rate, count in steps:
                if trainer.stop():
                    raise Interrupted("stopped")
                if self._stack.layers is not None:
                    self._stack.layers.counts = count.tolist()
                losses.append(self._step.run(x, y, rows, rate))
        mask = send(torch.from_numpy(active), self._targets.device).flatten(0, 1).T
        seen, layout = samples.epochs * samples.sizes, trainer.experiment.layout
        change = torch.sub(self._stack.vector, self._server.model, out=self._stack.gradient)
        distances = torch.linalg.vector_norm(layout.shared(change), dim=1)
        return StackedRun(
            self._stack.whole, torch.stack(losses, 1), mask, seen, distances, self._step.skipped, self._duals()
        )

    def _duals(self) -> Tensor | None:
        perturbation = self._step.terms.perturbation if isinstance(self._step, ExtendedStep) else None
        return None if perturbation is None else perturbation.dual

    def _start(self) -> None:
        """Each client where it begins."""
        trainer, stack, server = self._trainer, self._stack, self._server
        stack.vector.copy_(server.model)
        if server.statistics is not None:
            stack.statistics.copy_(server.statistics.expand_as(stack.statistics))
        if "start" in trainer.experiment.hooks or not self._common_teacher:
            for k, (own, client) in enumerate(zip(self._servers, self._clients, strict=True)):
                stack.load(k, trainer.start(own, client), own.statistics)
        if stack.layers is not None and stack.layers.draws:  # as each client draws by itself
            seed, device = trainer.experiment.config.seed, stack.vector.device
            seeds = [torch_seed(seed, Stream.MODULE, server.round, int(k)) for k in self._samples.clients]
            stack.layers.generators = [torch.Generator(device).manual_seed(number) for number in seeds]

    def _set_teachers(self, inputs: Tensor) -> None:
        """Of the common teacher, or of each client's own, whose BatchNorm stays with it."""
        trainer, logits = self._trainer, []
        for own, samples in zip(self._servers, inputs, strict=True) if not self._common_teacher else ():
            teacher = trainer.teacher(own)
            assert teacher is not None
            trainer.model.load(teacher, own.statistics)
            logits.append(teacher_logits(trainer.model, samples))
        trainer.set_teachers(self._step, inputs, self._targets, torch.cat(logits) if logits else None)

    def _counts(self) -> np.ndarray:
        """[E, batches, K]: how many samples each client has in each batch; 0: no batch."""
        samples, size = self._samples, self._trainer.experiment.config.batch_size
        epochs = np.arange(samples.epochs.max())[:, None, None]
        starts = np.arange(0, samples.sizes.max(), size)[:, None]
        counts: np.ndarray = (epochs < samples.epochs) * (samples.sizes - starts).clip(0, size)
        return counts

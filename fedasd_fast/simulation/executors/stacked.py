"""K clients of the round trained at once, on stacked parameters.

Clients are sorted by size and taken in chunks.  Within a chunk the smaller ones are padded: a missing sample has the
label ignore_index, and a client that has no batch in a step has the learning rate 0, so it stays as it is.  Each client
sees the batches that it would see alone, and each has a norm, a loss and a teacher's share of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ...algorithms import Correction, Server
from ...data.federated import FederatedData
from ...loss.cache import TeacherCache
from ...loss.functional import asd_loss_and_grad
from .. import update
from ..cohort import Sums, Task, Workplace, add_client, conclude, dropping, run_client
from ..errors import Interrupted
from ..flat import FlatModel
from ..samples import LocalSamples
from ..stacked_model import StackedModel
from ..trainer import LocalRun, label_shares
from .local import Local

_PADDING = -100  # ignore_index of the loss
_GROUP_BYTES = 512 * 2**20  # of the vectors and samples that are held at once


class Stacked(Local):
    def __init__(self, place: Workplace) -> None:
        super().__init__(place)
        self._stack: StackedModel | None = None

    def train(self, server: Server, group: Sequence[Task], sums: Sums) -> None:
        place = self.place
        place.trainer.model.vector.copy_(server.model)  # the teacher
        if self._stack is None or len(self._stack) != len(group):
            self._stack = StackedModel(place.trainer.model, len(group))
        records = [place.store.read(task.client) for task in group]
        clients = [place.client(task.client, record) for task, record in zip(group, records, strict=True)]
        try:
            corrections = [place.method.correction(server, client) for client in clients]
            runs = _Chunk(place, self._stack, server, group, corrections).train()
        except Interrupted:
            raise
        except Exception:  # of one operation for all, which does not say whose it was: one after the other, then
            for task in group:
                run_client(place, server, task, sums)
            return
        for task, record, client, run in zip(group, records, clients, runs, strict=True):
            with dropping(place, task, sums):
                add_client(place, server, task, conclude(place, server, client, record, run), sums)


def as_many_as_fit(model: FlatModel, data: FederatedData) -> int:
    """Clients to train at once."""
    vectors = 6 * len(model)  # parameters, gradient, v, velocity, what an ascent saves, and autograd's
    samples = 3 * int(data.sizes.max()) * math.prod(data.input_shape)
    return max(2, _GROUP_BYTES // (model.vector.element_size() * (vectors + samples)))


class _Chunk:
    """The training of the clients that are stacked."""

    def __init__(
        self,
        place: Workplace,
        stack: StackedModel,
        server: Server,
        tasks: Sequence[Task],
        corrections: Sequence[Correction],
    ) -> None:
        self._place, self._stack, self._server = place, stack, server
        self._correction = corrections[0]  # a, rho and epsilon are the method's, the same for all
        config, like = place.config, place.initial
        first = corrections[0].linear
        self._linear = None if first is None else torch.stack([c.linear for c in corrections if c.linear is not None])
        self._decay = self._numbers([config.optimizer.weight_decay + c.decay for c in corrections])  # [K]
        self._velocity = torch.zeros_like(stack.vectors) if config.optimizer.momentum else None
        self._samples = [LocalSamples(config, place.data, server.round, task.client, like) for task in tasks]
        self._epochs = [task.epochs for task in tasks]
        self._longest = max(len(samples) for samples in self._samples)
        self._rows = torch.arange(len(tasks), device=like.device).unsqueeze(1)  # [K, 1]
        self._targets = self._padded([samples.targets for samples in self._samples], _PADDING)  # [K, N]

    def train(self) -> list[LocalRun]:
        place, config = self._place, self._place.config
        distils, cached = place.trainer.distillation is not None, config.teacher != "recompute"
        inputs = self._padded([samples.inputs for samples in self._samples])  # [K, N, ..]
        teacher = self._teach(inputs) if distils and cached else None
        self._stack.vectors.copy_(self._server.model)
        losses: list[Tensor] = []  # [K] each
        active: list[Tensor] = []  # [K] each: who had a batch
        for epoch in range(max(self._epochs)):
            if self._samples[0].changing:
                inputs = self._padded([s.view() if epoch < epochs else s.inputs for s, epochs in self._pairs()])
            if distils and not cached:
                teacher = self._teach(inputs)
            order = self._padded([s.order() if epoch < epochs else s.targets[:0] for s, epochs in self._pairs()], -1)
            present = order >= 0
            order = order.clamp_min(0)
            x, y = inputs[self._rows, order], self._targets[self._rows, order].where(present, _PADDING)
            for start in range(0, self._longest, config.batch_size):
                if place.trainer.stopping():
                    raise Interrupted("stopped")
                part = slice(start, start + config.batch_size)
                on = present[:, part].any(1)
                lr = on.double() * self._server.lr
                losses.append(self._step(x[:, part], y[:, part], teacher, order[:, part], lr))
                active.append(on)
        trace, mask = torch.stack(losses, 1), torch.stack(active, 1)  # [K, steps]
        return [
            LocalRun(self._stack.vectors[k], trace[k, mask[k]], epochs * len(samples))
            for k, (samples, epochs) in enumerate(self._pairs())
        ]

    def _step(self, x: Tensor, y: Tensor, teacher: TeacherCache | None, rows: Tensor, lr: Tensor) -> Tensor:
        w, g, optimizer = self._stack.vectors, self._stack.gradients, self._place.config.optimizer
        loss = self._backward(x, y, teacher, rows)
        if self._correction.rho:
            saved = update.ascend(w, g, self._correction)
            self._backward(x, y, teacher, rows)
            w.copy_(saved)
        update.local_step(
            w, g, lr, quadratic=self._correction.quadratic, linear=self._linear, clip_norm=optimizer.clip_norm,
            decay=self._decay, velocity=self._velocity, momentum=optimizer.momentum,
        )  # fmt: skip
        return loss

    def _backward(self, x: Tensor, y: Tensor, teacher: TeacherCache | None, rows: Tensor) -> Tensor:
        """The clients' losses [K]; their gradients are left in the stack."""
        term = self._place.trainer.distillation
        logits = self._stack.forward(x)
        if teacher is None or term is None:  # cross-entropy alone: a distillation from itself, of weight 0
            own = logits.detach()
            loss, gradient = asd_loss_and_grad(own, own, y, None, 0.0, weighting="uniform")
        else:
            loss, gradient = asd_loss_and_grad(logits.detach(), teacher[rows], y, None, term.weight, **term.options())
        self._stack.backward(logits, gradient)
        return loss

    def _teach(self, inputs: Tensor) -> TeacherCache:
        """One pass of the common teacher over all clients' samples, padding included."""
        term = self._place.trainer.distillation
        assert term is not None
        model = self._place.trainer.model
        classes, dtype = self._place.data.num_classes, model.vector.dtype
        shares = torch.stack([label_shares(s.targets, classes, dtype) for s in self._samples])
        return TeacherCache.build(model.module, inputs, self._targets, shares, dtype=dtype, **term.teacher_options())

    def _pairs(self) -> list[tuple[LocalSamples, int]]:
        return list(zip(self._samples, self._epochs, strict=True))

    def _padded(self, parts: Sequence[Tensor], value: int = 0) -> Tensor:
        """[K, N, ..]: each part with `value` behind it."""
        result = parts[0].new_full((len(parts), self._longest, *parts[0].shape[1:]), value)
        for row, part in zip(result, parts, strict=True):
            row[: len(part)] = part
        return result

    def _numbers(self, values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=self._place.initial.device)

"""The local step as a CUDA graph: recorded once, then one launch a step in place of some hundred.

A graph knows addresses only.  So everything that a step reads lies in buffers that stay: the batch, the teacher's
cache, the correction, the numbers of the client; and what it leaves behind goes to a trace at a place that is counted
on the device.  Parameters are the model's own vector for every client, so a graph serves all clients and all rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from ...algorithms import Correction
from ...config import Config
from ...data.federated import FederatedData
from ...loss.teacher_cache import TeacherCache
from ..errors import SimulationError
from .flat_model import FlatModel, channels_last
from .local_step import LocalStep

_GRAPHS = 16  # batch sizes that are recorded; rarer ones, of the last batches of unequal clients, run as they are
_WARM_UP = 3  # runs before: libraries set themselves up in the first ones, which must not be recorded

Work: TypeAlias = Callable[[], None]


class CudaGraphs:
    """Records work: `CudaGraphs(device)(work, undo)` returns its replay.  Warming up runs work and undo by turns."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # Shared: a graph leaves nothing in its own memory that is read after its replay.
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work, undo: Work) -> Work:
        side, here = torch.cuda.Stream(self._device), torch.cuda.current_stream(self._device)
        side.wait_stream(here)
        with torch.cuda.stream(side), torch.random.fork_rng(devices=[self._device]):
            for _ in range(_WARM_UP):
                work()
                undo()
        here.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=side):
                work()
        except RuntimeError as error:
            raise SimulationError(
                f"cuda_graph = true, but this local step cannot be recorded: {error}; set cuda_graph = false, or find "
                "what in the model waits for the device (.item(), an if on a tensor)"
            ) from error
        return graph.replay  # keeps the graph


@dataclass(frozen=True)
class _Shape:
    """What a recorded step has for good."""

    batch: int
    quadratic: float
    rho: float
    rho_epsilon: float
    linear: bool
    has_teacher: bool


class CudaGraphStep(LocalStep):
    def __init__(
        self,
        config: Config,
        model: FlatModel,
        data: FederatedData,
        capture: Callable[[Work, Work], Work] | None = None,
    ) -> None:
        super().__init__(config, model)
        self._whole = model.whole
        self._capture = capture or CudaGraphs(model.vector.device)
        self._largest = int(data.sizes.max())
        w, batch = model.vector, min(config.batch_size, self._largest)
        self._x = channels_last(w.new_zeros(batch, *data.input_shape))
        self._y, self._rows = (torch.zeros(batch, dtype=torch.int64, device=w.device) for _ in range(2))
        self._lr, self._decay = (torch.zeros((), dtype=torch.float64, device=w.device) for _ in range(2))
        self._known_lr: float | Tensor | None = None  # what _lr holds, as the host knows it
        self._linear: Tensor | None = None
        self._cache: TeacherCache | None = None
        self._velocity = torch.zeros_like(w) if self.optimizer.momentum else None
        self._skipped = self._count()
        self._trace = w.new_zeros(config.local_epochs * math.ceil(self._largest / config.batch_size))
        self._position = torch.zeros(1, dtype=torch.int64, device=w.device)  # where the next loss goes
        self._done = 0  # the same number, as the host knows it
        self._replays: dict[_Shape, Work] = {}

    def begin(
        self, correction: Correction, decay: float | Tensor | None = None, loss_scale: float | None = None
    ) -> None:
        if loss_scale != self.loss_scale:  # which is a number in the graphs
            self._replays.clear()
        self.loss_scale = loss_scale
        self.skipped = None if loss_scale is None else self._skipped.zero_()
        if correction.linear is not None:
            self._linear = torch.empty_like(correction.linear) if self._linear is None else self._linear
            correction = replace(correction, linear=self._linear.copy_(correction.linear))
        self.correction, self.teacher = correction, None
        self.decay = self._decay.fill_(self.optimizer.weight_decay + correction.decay)
        self.velocity = None if self._velocity is None else self._velocity.zero_()
        self._position.zero_()
        self._done = 0

    def set_teacher(self, teacher: TeacherCache) -> None:
        if self._cache is None:
            self._cache = _room(teacher, self._largest)
        for to, values in (
            (self._cache.rows, teacher.rows),
            (self._cache.constant, teacher.constant),
            (self._cache.log_weight, teacher.log_weight),
            (self._cache.targets, teacher.targets),
            (self._cache.label_prior, teacher.label_prior),
        ):
            to[: len(values)].copy_(values)
        self.teacher = self._cache

    def run(self, x: Tensor, y: Tensor, rows: Tensor, lr: float | Tensor) -> Tensor:
        batch = len(y)
        if lr != self._known_lr:
            self._known_lr = lr
            self._lr.fill_(lr)
        for to, values in ((self._x, x), (self._y, y), (self._rows, rows)):
            to[:batch].copy_(values)
        self._replay(batch)()
        loss = self._trace[self._done]
        self._done += 1
        return loss

    def _replay(self, batch: int) -> Work:
        c = self.correction
        shape = _Shape(batch, c.quadratic, c.rho, c.rho_epsilon, c.linear is not None, self.teacher is not None)
        if shape not in self._replays:
            if len(self._replays) == _GRAPHS:
                return lambda: self._recorded(batch)
            self._replays[shape] = self._capture(lambda: self._recorded(batch), self._undo())
        return self._replays[shape]

    def _recorded(self, batch: int) -> None:
        loss = self._step(self._x[:batch], self._y[:batch], self._rows[:batch], self._lr)
        self._trace.index_copy_(0, self._position, loss.view(1))
        self._position.add_(1)

    def _undo(self) -> Work:
        """Puts back what a step changes."""
        changed = [self._whole, self._trace, self._position, *self._optional()]
        kept = [tensor.clone() for tensor in changed]
        return lambda: torch._foreach_copy_(changed, kept)

    def _optional(self) -> list[Tensor]:
        return [tensor for tensor in (self.velocity, self.skipped) if tensor is not None]


def _room(teacher: TeacherCache, samples: int) -> TeacherCache:
    """A cache like this one, for up to so many samples."""

    def zeros(like: Tensor) -> Tensor:
        return like.new_zeros(samples, *like.shape[1:])

    return replace(
        teacher, rows=zeros(teacher.rows), constant=zeros(teacher.constant), log_weight=zeros(teacher.log_weight),
        targets=zeros(teacher.targets), label_prior=torch.zeros_like(teacher.label_prior),
    )  # fmt: skip

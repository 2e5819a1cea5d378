"""Resource estimate of a run before it starts: steps, memory, disk; and the refusal of what cannot fit."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..common.formatting import format_bytes
from .context import Context
from .errors import SimulationError
from .storage.client_store import ClientStore
from .system.memory import available_memory

_TEACHER_ROW_EXTRA = 32  # bytes a sample beside the row itself: two float64, a label, rounding


@dataclass(frozen=True)
class ResourceEstimate:
    """Bytes unless said otherwise; numbers of clients and steps are expectations."""

    rounds: int
    clients_per_round: float
    steps: int  # local steps in the whole run
    step_flops: int
    parameters: int
    model: int  # parameters, gradient and the vectors of a local step and of a round
    data: int
    largest_client: int  # its samples as floats, once for each view held at a time
    teacher_cache: int  # of the largest client
    client_state: int  # of one client
    clients_with_state: int  # records: of clients that will have been sampled by the end, and replaced ones still kept
    state_file: int  # records that space is reserved for at a time, on disk
    state_on_disk: bool
    checkpoints: int  # the two that are kept, the one being written, and models.pt
    workers: int = 1  # processes on this machine that train clients
    training: str = ""  # how clients are trained, in words

    @property
    def state(self) -> int:
        whole = self.state_file if self.state_on_disk else 1
        return self.client_state * whole * math.ceil(self.clients_with_state / whole)

    @property
    def memory(self) -> int:
        held = self.data + self.workers * (self.model + self.largest_client + self.teacher_cache)
        return held if self.state_on_disk else held + self.state

    @property
    def disk(self) -> int:
        return self.state + self.checkpoints if self.state_on_disk else 0

    def rows(self) -> list[tuple[str, str]]:
        """Label and value of each line to print."""
        where = "disk" if self.state_on_disk else "memory"
        each = f", in each of {self.workers} workers" if self.workers > 1 else ""
        return [
            ("rounds", f"{self.rounds:,}"),
            ("clients a round", f"{self.clients_per_round:,.1f} on average"),
            ("local steps", f"{self.steps:,} in all, {self.steps * self.step_flops / 1e12:,.1f} TFLOP"),
            ("parameters", f"{self.parameters:,}"),
            ("local training", self.training),
            ("memory: model", format_bytes(self.model) + each),
            ("memory: data", format_bytes(self.data)),
            ("memory: largest client", format_bytes(self.largest_client) + each),
            ("memory: teacher cache", format_bytes(self.teacher_cache) + each),
            (
                f"{where}: client state",
                f"{format_bytes(self.state)} ({self.clients_with_state:,} x {format_bytes(self.client_state)})",
            ),
            ("disk: checkpoints", format_bytes(self.checkpoints if self.state_on_disk else 0)),
            ("memory in all", format_bytes(self.memory)),
            ("disk in all", format_bytes(self.disk)),
        ]


def estimate_resources(context: Context, workers: int | None = None) -> ResourceEstimate:
    """For so many processes that train on this machine; by default, as the configuration says."""
    experiment, records = context.experiment, context.records
    config, data, method = experiment.config, experiment.data, experiment.method
    assert isinstance(records, ClientStore)
    size, width = len(context.initial), context.initial.element_size()
    sizes = data.sizes.numpy()
    sampled = config.participation * config.clients
    finishing = sampled * (1 - config.failures.dropout)
    steps_an_epoch = float(np.ceil(sizes / config.batch_size).mean())
    stragglers = config.failures.stragglers if config.local_epochs > 1 else 0.0
    epochs = config.local_epochs * (1 - stragglers / 2)
    seen = config.clients * -math.expm1(config.rounds * math.log1p(-min(config.participation, 1 - 1e-12)))
    # Replaced records stay until two further checkpoints are written; in memory, until the round ends.
    kept = finishing * min(2 * config.checkpoint_every if config.out is not None else 1, config.rounds)
    stored = math.ceil(seen + kept) if records.names else 0
    views = 1 if config.augment == "none" else 2
    largest = int(sizes.max())
    states = 1 + len(method.server_state)
    caches = (config.distillation is not None) + (config.ascent_loss is not None)
    return ResourceEstimate(
        rounds=config.rounds,
        clients_per_round=finishing,
        steps=round(config.rounds * finishing * epochs * steps_an_epoch),
        step_flops=context.step_flops,
        parameters=size,
        model=size * (6 * width + 8 * (3 + states + len(method.client_state) + len(method.sent))),
        data=data.nbytes,
        largest_client=largest * math.prod(data.input_shape) * width * (1 + views),
        teacher_cache=caches * largest * (data.positions or 1) * (data.num_classes * width + _TEACHER_ROW_EXTRA),
        client_state=records.record_bytes if records.names else 0,
        clients_with_state=stored,
        state_file=records.chunk_slots,
        state_on_disk=config.out is not None,
        checkpoints=3 * (size * (3 * width + 8 * states) + 24 * stored) + len(config.eval_models) * size * width,
        workers=context.workers if workers is None else workers,
        training="measured when the run begins" if config.executor == "auto" else context.training,
    )


def check_resources(context: Context) -> ResourceEstimate:
    """The estimate; an error with advice when memory or disk will not do."""
    estimate = estimate_resources(context)
    if reason := shortage(estimate, context):
        raise SimulationError(reason)
    return estimate


def shortage(estimate: ResourceEstimate, context: Context) -> str | None:
    """What there is too little of, and what to do about it; None if the run fits."""
    memory = available_memory()
    if memory is not None and estimate.memory > memory:
        return (
            f"the run needs {format_bytes(estimate.memory)} of memory, {format_bytes(memory)} are available; leave "
            "`all` out of eval_models (it keeps every client's last model), set `out` to keep client state on disk, or "
            "use a smaller model"
        )
    out = context.experiment.config.out
    if out is not None and estimate.disk > (free := free_disk(Path(out))):
        return (
            f"the run needs {format_bytes(estimate.disk)} on disk, {format_bytes(free)} are free at {out}; leave "
            "`all` out of eval_models (it keeps every client's last model), or choose another directory"
        )
    return None


def free_disk(path: Path) -> int:
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free

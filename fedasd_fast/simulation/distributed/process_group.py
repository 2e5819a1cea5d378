"""The process group of a run: the ranks that torchrun started on one or several machines, or one process alone.

All ranks go through the same rounds and compute the same state.  Rank 0, the leader, writes what they have in common.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor

from ...common.schema import ConfigError
from ...config import Config
from ..errors import SimulationError, portable
from .rendezvous import agree_on_name

NOT_STARTED = "executor = torchrun is for runs that torchrun starts"
T = TypeVar("T")
_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
_PER_MACHINE = ("data_dir", "out", "name")  # settings that may differ from one machine to the next
_START_TIMEOUT = timedelta(minutes=10)  # for all ranks to be there
_ROUND_TIMEOUT = timedelta(days=1)  # the slowest rank of a round; lost machines are noticed by torchrun itself


class ProcessGroup:
    """A single process; for several, see `TorchProcessGroup`."""

    rank, world = 0, 1

    @property
    def is_leader(self) -> bool:
        return self.rank == 0

    def from_leader(self, make: Callable[[], T]) -> T:
        """What `make` gives the leader; an error of its own is raised in all ranks."""
        return make()

    def gather(self, part: T) -> list[T]:
        """The parts of all ranks, in their order."""
        return [part]

    def all_reduce(self, buffer: Tensor) -> None:
        """The buffer becomes the sum over all ranks."""

    def exchange(self, parts: Sequence[Tensor], sizes: Sequence[int]) -> list[Tensor]:
        """Sends parts[r], on the CPU, to rank r; returns what came from each rank, sizes[r] rows from rank r."""
        return list(parts)

    def check_settings(self, config: Config) -> None:
        """Ranks are started one by one: nothing else makes sure that they were told the same."""


class TorchProcessGroup(ProcessGroup):
    """The ranks that torchrun started."""

    def __init__(self) -> None:
        import torch.distributed

        self._dist: Any = torch.distributed
        dist = self._dist
        self._ours = not dist.is_initialized()  # else the caller's
        gpus = torch.cuda.device_count()
        if gpus:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % gpus)
        with _lost_ranks():
            if self._ours:
                store, rank, world = _shared_store()
                store = dist.PrefixStore(agree_on_name(store, rank, world, _START_TIMEOUT), store)
                backend = "cpu:gloo,cuda:nccl" if gpus else "gloo"
                dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=_ROUND_TIMEOUT)
            # Objects and records travel through main memory.
            self._cpu_group = dist.new_group(backend="gloo", timeout=_ROUND_TIMEOUT)
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def from_leader(self, make: Callable[[], T]) -> T:
        found: list[Any] = [None, None]
        if self.is_leader:
            try:
                found[0] = make()
            except Exception as error:
                found[1] = portable(error)
        with _lost_ranks():
            self._dist.broadcast_object_list(found, src=0, group=self._cpu_group)
        if found[1] is not None:
            raise agreed(found[1])
        return found[0]  # type: ignore[no-any-return]

    def gather(self, part: T) -> list[T]:
        parts: list[Any] = [None] * self.world
        with _lost_ranks():
            self._dist.all_gather_object(parts, part, group=self._cpu_group)
        return parts

    def all_reduce(self, buffer: Tensor) -> None:
        with _lost_ranks():
            self._dist.all_reduce(buffer)

    def exchange(self, parts: Sequence[Tensor], sizes: Sequence[int]) -> list[Tensor]:
        sent = torch.cat(list(parts))
        received = sent.new_empty(sum(sizes), *sent.shape[1:])
        with _lost_ranks():
            self._dist.all_to_all_single(
                received, sent, list(sizes), [len(part) for part in parts], group=self._cpu_group
            )
        return list(received.split(list(sizes)))

    def check_settings(self, config: Config) -> None:
        settings = {key: value for key, value in config.to_dict().items() if key not in _PER_MACHINE}
        settings["the version of torch"] = torch.__version__
        for rank, theirs in enumerate(self.gather(settings)):
            if changed := [key for key, value in settings.items() if theirs.get(key) != value]:
                raise SimulationError(
                    f"rank {rank} was started with other settings than rank {self.rank}: {', '.join(changed)}; start "
                    "all machines with the same command and the same versions"
                )

    def leave(self) -> None:
        if self._ours:
            self._dist.destroy_process_group()


@functools.cache  # one connection a process: rank 0 may host the store, and closing it would cut off the other ranks
def _shared_store() -> tuple[Any, int, int]:
    """The store through which ranks find each other, this rank, and the number of ranks."""
    import torch.distributed

    dist: Any = torch.distributed
    found: tuple[Any, int, int] = next(dist.rendezvous("env://", timeout=_START_TIMEOUT))
    return found


def started_by_torchrun() -> bool:
    """Whether torchrun started this process."""
    return all(name in os.environ for name in _VARIABLES)


def is_main_process() -> bool:
    """Whether this process writes and prints: rank 0, or one without torchrun."""
    return not started_by_torchrun() or os.environ["RANK"] == "0"


def restart_count() -> int:
    """How often torchrun has started this run again."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) if started_by_torchrun() else 0


@contextmanager
def process_group(executor: str) -> Iterator[ProcessGroup]:
    """All ranks of the run if its executor is torchrun, else this process alone."""
    if executor != "torchrun":
        yield ProcessGroup()
        return
    if not started_by_torchrun():
        raise ConfigError(
            f"{NOT_STARTED}: `torchrun --nproc-per-node=2 -m fedasd_fast.cli run ...`, or use executor = processes on "
            "one machine"
        )
    group = TorchProcessGroup()
    yield group
    group.leave()  # not after an error: others may be waiting for us, and it for them


def agreed(error: Exception) -> Exception:
    """An error that all ranks raise at the same place, so that they can still do things together."""
    error.agreed = True  # type: ignore[attr-defined]
    return error


def is_agreed(error: BaseException) -> bool:
    return getattr(error, "agreed", False)


@contextmanager
def _lost_ranks() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise SimulationError(
            "another rank of the run has ended or cannot be reached; with --max-restarts torchrun starts all of them "
            f"again from the last checkpoint ({str(error).strip().splitlines()[0]})"
        ) from error

"""The processes of a run on one or several machines, as torchrun starts them; a run without torchrun is one rank alone.

All ranks go through the same rounds and compute the same state.  Rank 0, the leader, writes what they have in common.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor

from ...common.schema import ConfigError
from ...config import Config
from ..errors import SimulationError, portable
from .rendezvous import meet

NOT_LAUNCHED = "executor = torchrun is for runs that torchrun starts"
T = TypeVar("T")
_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
_OWN = ("data_dir", "out", "name")  # settings that may differ from one machine to the next
_START = timedelta(minutes=10)  # for all ranks to be there
_PATIENCE = timedelta(days=1)  # the slowest rank of a round; lost machines are noticed by torchrun itself


class Ranks:
    """One rank alone; with more, see `Together`."""

    rank, world = 0, 1

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def from_leader(self, make: Callable[[], T]) -> T:
        """What `make` gives the leader; an error of its own is raised in all ranks."""
        return make()

    def gather(self, part: T) -> list[T]:
        """The parts of all ranks, in their order."""
        return [part]

    def add(self, buffer: Tensor) -> None:
        """Becomes the sum over all ranks."""

    def check_settings(self, config: Config) -> None:
        """Ranks are started one by one: nothing else makes sure that they were told the same."""


class Together(Ranks):
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
                store, rank, world = next(dist.rendezvous("env://", timeout=_START))
                store = dist.PrefixStore(meet(store, rank, world, _START), store)
                backend = "cpu:gloo,cuda:nccl" if gpus else "gloo"
                dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=_PATIENCE)
            self._texts = dist.new_group(backend="gloo", timeout=_PATIENCE)  # objects travel through main memory
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def from_leader(self, make: Callable[[], T]) -> T:
        found: list[Any] = [None, None]
        if self.leads:
            try:
                found[0] = make()
            except Exception as error:
                found[1] = portable(error)
        with _lost_ranks():
            self._dist.broadcast_object_list(found, src=0, group=self._texts)
        if found[1] is not None:
            raise agreed(found[1])
        return found[0]  # type: ignore[no-any-return]

    def gather(self, part: T) -> list[T]:
        parts: list[Any] = [None] * self.world
        with _lost_ranks():
            self._dist.all_gather_object(parts, part, group=self._texts)
        return parts

    def add(self, buffer: Tensor) -> None:
        with _lost_ranks():
            self._dist.all_reduce(buffer)

    def check_settings(self, config: Config) -> None:
        settings = {key: value for key, value in config.to_dict().items() if key not in _OWN}
        settings["the version of torch"] = torch.__version__
        for rank, theirs in enumerate(self.gather(settings)):
            if changed := [key for key, value in settings.items() if theirs[key] != value]:
                raise SimulationError(
                    f"rank {rank} was started with other settings than rank {self.rank}: {', '.join(changed)}; start "
                    "all machines with the same command and the same versions"
                )

    def leave(self) -> None:
        if self._ours:
            self._dist.destroy_process_group()


def launched() -> bool:
    """Whether torchrun started this process."""
    return all(name in os.environ for name in _VARIABLES)


def leads() -> bool:
    """Whether this process writes and prints: rank 0, or one without torchrun."""
    return not launched() or os.environ["RANK"] == "0"


def restarts() -> int:
    """How often torchrun has started this run again."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) if launched() else 0


@contextmanager
def joined(executor: str) -> Iterator[Ranks]:
    """All ranks of the run, if its executor is torchrun."""
    if executor != "torchrun":
        yield Ranks()
        return
    if not launched():
        raise ConfigError(
            f"{NOT_LAUNCHED}: `torchrun --nproc-per-node=2 -m fedasd_fast.cli run ...`, or use executor = processes on "
            "one machine"
        )
    ranks = Together()
    yield ranks
    ranks.leave()  # not after an error: others may be waiting for us, and it for them


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

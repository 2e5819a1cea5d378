"""Clients whose data notes who trains them, and can be the end of a worker; importable, as workers need it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from fedasd_fast.config import Config
from fedasd_fast.data.federated import FederatedData, Samples
from fedasd_fast.data.load import federate


class TrackedClients(FederatedData):
    """The data of `config`.  Processes other than the one that made it leave a file with their pid in `notes`, and a
    worker that reads a client in `deadly` is killed: as often as that says."""

    def __init__(self, config: Config, notes: Path, deadly: dict[int, int] | None = None, delay: float = 0.0) -> None:
        self._data, self._notes, self._deadly, self._delay = federate(config), notes, deadly or {}, delay
        self.__dict__.update({name: getattr(self._data, name) for name in ("name", "num_classes", "input_shape")})
        self.sizes, self.test, self._made_by = self._data.sizes, self._data.test, os.getpid()
        notes.mkdir(exist_ok=True)

    def client(self, k: int) -> Samples:
        if os.getpid() != self._made_by:
            (self._notes / f"pid {os.getpid()}").touch()
            for death in range(self._deadly.get(k, 0)):
                if not (token := self._notes / f"client {k} death {death}").exists():
                    token.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(self._delay)
        return self._data.client(k)

    @property
    def nbytes(self) -> int:
        return self._data.nbytes


class Unborn(TrackedClients):
    """Cannot be made in a worker."""

    def __setstate__(self, state: object) -> None:
        raise OSError("the disk is gone")


def pids(notes: Path) -> set[int]:
    return {int(path.name.split()[1]) for path in notes.glob("pid *")}


def all_gone(pids: set[int], patience: float = 10.0) -> bool:
    """Whether these processes ended, zombies counted as not ended."""
    until = time.monotonic() + patience
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True

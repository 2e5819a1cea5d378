"""The run directory: config.yaml, versions.jsonl, metrics.jsonl, checkpoint/, clients/, and a lock while a process uses
it."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from ...config import Config, from_yaml
from ..errors import SimulationError
from ..system.versions import versions
from .checkpoint import write_atomically

_LOCK_TIMEOUT = 10.0  # seconds


class RunDirectory:
    """Open it with `with`: the lock is held until the block ends, or until the process dies in whatever way."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[bytes] | None = None

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoint"

    @property
    def clients(self) -> Path:
        return self.path / "clients"

    def __enter__(self) -> RunDirectory:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.path / "lock", "ab+", buffering=0)
            import fcntl  # here: the package itself, without runs in folders, works on systems that lack it

            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._wait_for_workers()
        except BlockingIOError:
            assert self._lock is not None
            self._lock.seek(0)
            owner = self._lock.read().decode().strip() or "unknown"
            self._lock.close()
            raise SimulationError(
                f"{self.path} is in use by process {owner}; wait for it or stop it, or choose another directory"
            ) from None
        except OSError as error:
            raise SimulationError(f"cannot use the directory {self.path}: {error.strerror}") from error
        with contextlib.suppress(OSError):  # a full disk: the lock holds without its owner's name
            self._lock.truncate(0)
            self._lock.write(str(os.getpid()).encode())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._lock is not None
        self._lock.close()

    def _wait_for_workers(self) -> None:
        """Workers of a run that was killed notice it within a moment; until then they may be writing records."""
        if self.clients.exists():
            os.close(lock(self.clients))

    def holds_a_run(self) -> bool:
        return (self.path / "config.yaml").exists()

    def refuse_a_run(self) -> None:
        if self.holds_a_run():
            raise SimulationError(
                f"{self.path} holds a run already; continue it with `fedasd resume {self.path}`, or choose another "
                "directory"
            )

    def begin(self, config: Config) -> None:
        self.refuse_a_run()  # again, under the lock
        self.save(config, 0)

    def save(self, config: Config, round: int) -> None:
        """With what the rounds from here on are run: settings and versions.  Rounds done keep their versions."""
        self.write("config.yaml", config.to_yaml().encode())
        before = [row for row in _rows(self.path / "versions.jsonl") if row["round"] < round]
        now = {"round": round, **versions()}
        if not before or {**before[-1], "round": round} != now:
            before.append(now)
        self.write("versions.jsonl", _lines(before))

    def config(self) -> Config:
        if not self.holds_a_run():
            raise SimulationError(f"{self.path} is not a run directory: there is no config.yaml in it")
        return from_yaml(self.path / "config.yaml")

    def write(self, name: str, data: bytes | memoryview) -> None:
        try:
            write_atomically(self.path / name, data)
        except OSError as error:
            raise self._cannot_write(name, error) from error

    def metrics(self, until: int | None = None) -> list[dict[str, Any]]:
        """The rows up to round `until`; a last line that was cut off when the process died is passed over."""
        rows = _rows(self.path / "metrics.jsonl")
        return [row for row in rows if until is None or row["round"] <= until]

    def rewind_metrics(self, until: int) -> list[dict[str, Any]]:
        """Drops the rows after round `until`, which will be run again."""
        rows = self.metrics(until)
        self.write("metrics.jsonl", _lines(rows))
        return rows

    def append_metrics(self, row: dict[str, Any]) -> None:
        try:
            with open(self.path / "metrics.jsonl", "ab") as file:
                file.write(_lines([row]))
        except OSError as error:
            raise self._cannot_write("metrics.jsonl", error) from error

    def sync_metrics(self) -> None:
        """What was appended survives a loss of power: a checkpoint is worth no more than the rows up to it."""
        with contextlib.suppress(FileNotFoundError), open(self.path / "metrics.jsonl", "rb") as file:
            os.fsync(file.fileno())

    def _cannot_write(self, name: str, error: OSError) -> SimulationError:
        return SimulationError(
            f"cannot write {self.path / name}: {error.strerror}; nothing that was saved is harmed: when it can be "
            f"written again, continue with `fedasd resume {self.path}`"
        )


class RankDirectory(RunDirectory):
    """The run directory as ranks other than the leader use it: they write their own shard of clients/ only."""

    def __init__(self, path: Path, shard: Path) -> None:
        super().__init__(path)
        self._shard = shard

    def __enter__(self) -> RankDirectory:
        try:
            self._shard.mkdir(parents=True, exist_ok=True)
            self._descriptor = lock(self._shard)
        except BlockingIOError:
            raise SimulationError(f"{self._shard} is in use by a rank of another run; wait for it or stop it") from None
        except OSError as error:
            raise SimulationError(f"cannot use the directory {self._shard}: {error.strerror}") from error
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def begin(self, config: Config) -> None: ...

    def write(self, name: str, data: bytes | memoryview) -> None: ...

    def append_metrics(self, row: dict[str, Any]) -> None: ...


def _rows(path: Path) -> list[dict[str, Any]]:
    rows = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def _lines(rows: Iterable[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def lock(directory: Path) -> int:
    """A descriptor that holds the directory's lock; waits for it for a while."""
    import fcntl

    descriptor, until = os.open(directory, os.O_RDONLY), time.monotonic() + _LOCK_TIMEOUT
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > until:
                os.close(descriptor)
                raise
            time.sleep(0.01)

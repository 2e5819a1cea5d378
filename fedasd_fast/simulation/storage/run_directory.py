"""The run directory: config.yaml, versions.jsonl, metrics.jsonl, checkpoint/, clients/, and a lock while a process uses
it."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from ...common import jsonl, safe_yaml
from ...common.files import UnsuitableFile, identity, open_no_follow, read_bounded, write_atomically
from ...common.schema import ConfigError
from ...config import BEFORE, Config, from_saved_yaml
from ..errors import SimulationError, directory_gone
from ..system.versions import versions
from .rows import read_rows

_LOCK_TIMEOUT = 10.0  # seconds
_END = "# end of the settings\n"  # without this line config.yaml is of an older version, or was cut short
_log = logging.getLogger(__name__)


class RunDirectory:
    """Open it with `with`: the lock is held until the block ends, or until the process dies in whatever way."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[bytes] | None = None
        self._identity: tuple[int, int] | None = None  # while it is open

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoint"

    @property
    def clients(self) -> Path:
        return self.path / "clients"

    @property
    def _resume_command(self) -> str:
        return shlex.join(["fedasd", "resume", str(self.path)])

    def __enter__(self) -> RunDirectory:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._identity = identity(self.path)
            self._lock = open_no_follow(self.path / "lock", "ab+", buffering=0)
            import fcntl  # here: the package itself, without runs in folders, works on systems that lack it

            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._wait_for_workers()
            self.clients.mkdir(exist_ok=True)
        except BlockingIOError:
            assert self._lock is not None
            self._lock.seek(0)
            owner = self._lock.read(20).decode(errors="replace").strip() or "unknown"
            self._lock.close()
            raise SimulationError(
                f"{self.path} is in use by process {owner}; wait for it or stop it, or choose another directory"
            ) from None
        except OSError as error:
            reason = error if isinstance(error, UnsuitableFile) else error.strerror
            raise SimulationError(f"cannot use the directory {self.path}: {reason}") from error
        with contextlib.suppress(OSError):  # a full disk: the lock holds without its owner's name
            self._lock.truncate(0)
            self._lock.write(str(os.getpid()).encode())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._lock is not None
        self._lock.close()
        self._identity = None

    def _wait_for_workers(self) -> None:
        """Workers of a run that was killed notice it within a moment; until then they may be writing records."""
        if self.clients.exists():
            os.close(lock(self.clients))

    def holds_a_run(self) -> bool:
        return (self.path / "config.yaml").exists()

    def refuse_a_run(self) -> None:
        if self.holds_a_run():
            raise SimulationError(
                f"{self.path} holds a run already; continue it with `{self._resume_command}`, or choose another "
                "directory"
            )

    def begin(self, config: Config, training: str = "") -> None:
        self.refuse_a_run()  # again, under the lock
        self.save(config, 0, training)

    def save(self, config: Config, round: int, training: str = "") -> None:
        """With what the rounds from here on are run: settings, versions, and how clients are trained, in words.  Rounds
        done keep their versions."""
        self.write("config.yaml", (config.to_yaml() + _END).encode())
        before = [row for row in self._rows("versions.jsonl", replacing=True) if row["round"] < round]
        now = {"round": round, "date": datetime.now(timezone.utc).isoformat(timespec="seconds"), **versions()}
        if training:
            now["training"] = training
        if not before or {**before[-1], "round": round, "date": now["date"]} != now:
            before.append(now)
        self.write("versions.jsonl", jsonl.dump(before))

    def config(self) -> Config:
        if not self.holds_a_run():
            raise SimulationError(f"{self.path} is not a run directory: there is no config.yaml in it")
        if not any(self.checkpoints.glob("round-*.pt")):
            always = {key: value for key, value in Config().to_dict().items() if key not in BEFORE}
            self._check_complete(always)  # with checkpoints, see check_complete
        return from_saved_yaml(self.path / "config.yaml")

    def check_complete(self, saved: str) -> None:
        """Refuses a config.yaml that lacks settings which the checkpoint has: they would get their defaults."""
        self._check_complete(safe_yaml.load(saved, "the configuration in the checkpoint"))

    def _check_complete(self, expected: Mapping[str, Any]) -> None:
        path = self.path / "config.yaml"
        remedy = "restore it from a copy, or start the run anew in another directory"
        text = read_bounded(path, safe_yaml.MAX_BYTES)
        if text.endswith(_END.encode()):
            return
        try:
            from_saved_yaml(path)
            found = safe_yaml.load(text, str(path))
        except ConfigError as error:
            raise SimulationError(f"{path} was cut short, or damaged: {error}; {remedy}") from None
        missing = [key for key in expected if not isinstance(found, dict) or key not in found]
        if missing or not text.endswith(b"\n"):
            lacks = f"lacks {', '.join(missing[:3])}{' and more' if missing[3:] else ''}" if missing else "has no end"
            raise SimulationError(f"{path} was cut short: it {lacks}; {remedy}")

    def check_in_place(self) -> None:
        """Nothing is written to a directory that took the place of the run's own."""
        if self._identity is not None and identity(self.path) != self._identity:
            raise directory_gone(self.path)

    def write(self, name: str, data: bytes | memoryview) -> None:
        self.check_in_place()
        try:
            write_atomically(self.path / name, data)
        except OSError as error:
            raise self._cannot_write(name, error) from error

    def metrics(self, until: int | None = None) -> list[dict[str, Any]]:
        """The rows up to round `until`; damaged lines are logged and left out (see jsonl.py)."""
        return [row for row in self._rows("metrics.jsonl") if until is None or row["round"] <= until]

    def rewind_metrics(self, until: int) -> list[dict[str, Any]]:
        """Drops the rows after round `until`, which will be run again; a damaged file is first copied."""
        rows = [row for row in self._rows("metrics.jsonl", replacing=True) if row["round"] <= until]
        self.write("metrics.jsonl", jsonl.dump(rows))
        return rows

    def append_metrics(self, row: dict[str, Any]) -> None:
        self.check_in_place()
        try:
            with open_no_follow(self.path / "metrics.jsonl", "ab") as file:
                file.write(jsonl.dump([row]))
        except OSError as error:
            raise self._cannot_write("metrics.jsonl", error) from error

    def _rows(self, name: str, replacing: bool = False) -> list[dict[str, Any]]:
        """The rows of a file; if it is damaged and about to be replaced, the original stays as NAME.damaged."""
        found = read_rows(self.path / name)
        for line in found.bad_lines:
            _log.warning("%s", line)
        if found.bad_lines and replacing:
            copy = jsonl.damaged_copy(self.path / name)
            self.write(copy.name, (self.path / name).read_bytes())
            _log.warning("the damaged file is kept as %s", copy)
        return found.rows

    def sync_metrics(self) -> None:
        """What was appended survives a loss of power: a checkpoint is worth no more than the rows up to it."""
        with contextlib.suppress(FileNotFoundError), open(self.path / "metrics.jsonl", "rb") as file:
            os.fsync(file.fileno())

    def _cannot_write(self, name: str, error: OSError) -> SimulationError:
        return SimulationError(
            f"cannot write {self.path / name}: {error.strerror}; nothing that was saved is harmed: when it can be "
            f"written again, continue with `{self._resume_command}`"
        )


class RankDirectory(RunDirectory):
    """The run directory as ranks other than the leader use it: they write their own shard of clients/ only."""

    def __init__(self, path: Path, shard: Path) -> None:
        super().__init__(path)
        self._shard = shard

    def __enter__(self) -> RankDirectory:
        try:
            self._shard.mkdir(parents=True, exist_ok=True)
            self._identity = identity(self.path)
            self._descriptor = lock(self._shard)
        except BlockingIOError:
            raise SimulationError(f"{self._shard} is in use by a rank of another run; wait for it or stop it") from None
        except OSError as error:
            raise SimulationError(f"cannot use the directory {self._shard}: {error.strerror}") from error
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
        self._identity = None

    def begin(self, config: Config, training: str = "") -> None: ...

    def write(self, name: str, data: bytes | memoryview) -> None: ...

    def append_metrics(self, row: dict[str, Any]) -> None: ...


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

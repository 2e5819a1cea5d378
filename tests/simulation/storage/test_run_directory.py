"""The folder of a run: one process at a time, and rows of metrics that survive what happens to the file."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import pytest

from fedasd_fast.simulation import SimulationError
from fedasd_fast.simulation.storage.run_directory import RunDirectory
from tests.simulation.small_runs import small_config


def test_one_at_a_time(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "new" / "run") as folder:
        with (
            pytest.raises(SimulationError, match=rf"run is in use by process {os.getpid()}; wait for it or stop it"),
            RunDirectory(folder.path),
        ):
            pass
        with pytest.raises(SimulationError, match="in use"), RunDirectory(folder.path):
            pass  # the failed attempt did not free it
    with RunDirectory(folder.path):
        pass


def test_lock_is_freed_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), RunDirectory(tmp_path):
        raise ZeroDivisionError
    with RunDirectory(tmp_path):
        pass


def test_full_disk_does_not_keep_the_lock_from_working(tmp_path: Path) -> None:
    """The name of the process cannot be written then; everything else works."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))  # no byte can be written
    try:
        with RunDirectory(tmp_path):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "lock").stat().st_size == 0


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(SimulationError, match=r"cannot use the directory .*file: File exists"),
        RunDirectory(tmp_path / "file"),
    ):
        pass


def test_locks_that_the_file_system_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", unsupported)
    message = r"cannot use the directory .*Operation not supported"
    with pytest.raises(SimulationError, match=message), RunDirectory(tmp_path):
        pass


def test_a_run_is_begun_once(tmp_path: Path) -> None:
    with RunDirectory(tmp_path) as folder:
        folder.begin(small_config())
        assert folder.config() == small_config()
        with pytest.raises(SimulationError, match=r"holds a run already; continue it with `fedasd resume"):
            folder.begin(small_config(seed=3))
        assert folder.config() == small_config()


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    folder = RunDirectory(tmp_path)
    assert folder.metrics() == []
    rows = [{"round": n, "loss": 0.1 + 1e-17 * n, "tiny": 5e-324 * n, "failed": {"3": "é"}} for n in (1, 2, 3)]
    for row in rows:
        folder.append_metrics(row)
    assert folder.metrics() == rows
    assert folder.metrics(until=2) == rows[:2]
    assert folder.rewind_metrics(2) == rows[:2]
    assert folder.metrics() == rows[:2]


@pytest.mark.parametrize("tail", ['{"round": 3, "lo', '{"round": 3}garbage\n', "\x00\x00\x00", "\n"])
def test_a_cut_last_row_is_passed_over(tail: str, tmp_path: Path) -> None:
    folder = RunDirectory(tmp_path)
    for number in (1, 2):
        folder.append_metrics({"round": number})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write(tail)
    assert folder.rewind_metrics(5) == [{"round": 1}, {"round": 2}]
    folder.append_metrics({"round": 3})
    assert [row["round"] for row in folder.metrics()] == [1, 2, 3]


def test_writes_are_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunDirectory(tmp_path)
    folder.write("models.pt", b"before")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(SimulationError, match=r"models.pt: No space left on device; nothing that was saved is harmed"):
        folder.write("models.pt", b"after")
    assert (tmp_path / "models.pt").read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == ["models.pt"]

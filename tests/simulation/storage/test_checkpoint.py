"""Checkpoints are written whole or not at all, checked when read, and hold no code."""

from __future__ import annotations

import hashlib
import logging
import pickle
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedasd_fast.callbacks import Callback
from fedasd_fast.config import Config
from fedasd_fast.simulation import SimulationError, resume, simulate
from fedasd_fast.simulation.storage import checkpoint
from tests.simulation import subprocess_runs as processes
from tests.simulation.small_runs import assert_same, contents, files, small_config


def content_of(round: int, **others: Any) -> dict[str, Any]:
    vector = torch.full((100,), float(round))
    state = {"round": round, "all_change": None, "server": {}, "initial": vector, "cloud": vector, "sel": vector}
    none = torch.tensor([])
    clients = {"clients": none, "slots": none}
    return {"round": round, "state": state, "clients": clients, "config": "", "threads": 1, **others}


def write(directory: Path, rounds: range) -> None:
    for number in rounds:
        checkpoint.save(directory, number, content_of(number, vector=torch.full((100,), float(number))))


def names(directory: Path) -> list[str]:
    return sorted(path.name[:13] for path in directory.iterdir())


def newest(directory: Path) -> Path:
    return max(directory.glob("round-*.pt"))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def garble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1  # a single bit
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    write(tmp_path, range(1, 6))
    assert names(tmp_path) == ["round-0000004", "round-0000005"]
    one, other = checkpoint.load(tmp_path)
    assert (one["round"], other["round"]) == (5, 4)
    assert torch.equal(other["vector"], torch.full((100,), 4.0))


@pytest.mark.parametrize("harm", [truncate, garble, empty])
def test_a_damaged_one_is_passed_over_and_said_so(
    harm: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, range(1, 3))
    harm(bad := newest(tmp_path))
    with caplog.at_level(logging.WARNING):
        (content,) = checkpoint.load(tmp_path)
    assert content["round"] == 1
    assert f"{bad} cannot be used: its checksum does not match; falling back" in caplog.text


def test_a_damaged_one_never_displaces_a_whole_one(tmp_path: Path) -> None:
    write(tmp_path, range(1, 3))
    garble(newest(tmp_path))
    checkpoint.save(tmp_path, 2, content_of(2, other=1))  # the round again; its file has another name
    assert [content["round"] for content in checkpoint.load(tmp_path)] == [2, 1]
    garble(newest(tmp_path))
    assert [content["round"] for content in checkpoint.load(tmp_path)] == [1]


def test_leftovers_of_a_killed_process_go(tmp_path: Path) -> None:
    write(tmp_path, range(1, 3))
    (tmp_path / "round-0000003-0123456789abcdef.pt.tmp").write_bytes(b"half of it")
    assert len(checkpoint.load(tmp_path)) == 2
    write(tmp_path, range(3, 4))
    assert names(tmp_path) == ["round-0000002", "round-0000003"]


def test_no_code_runs_from_a_forged_checkpoint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Malice:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "executed",)

    assert pickle.loads(pickle.dumps(Malice())) is None  # it does harm where it is let
    (tmp_path / "executed").unlink()
    directory = tmp_path / "checkpoint"
    write(directory, range(1, 2))
    for content in ({"state": Malice()}, Malice()):
        torch.save(content, tmp_path / "forged")
        digest = hashlib.sha256((tmp_path / "forged").read_bytes()).hexdigest()[:16]
        (tmp_path / "forged").rename(directory / f"round-0000002-{digest}.pt")  # with the right checksum
        assert [content["round"] for content in checkpoint.load(directory)] == [1]
        assert not (tmp_path / "executed").exists()
        assert "holds more than tensors, numbers and texts" in caplog.text


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("whole") / "run"
    simulate(small_config(method="feddyn+asd", out=str(out)))
    return contents(out)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Seven rounds with checkpoints of the last two, 6 and 7."""
    simulate(small_config(method="feddyn+asd", out=str(tmp_path / "run")))
    return tmp_path / "run"


@pytest.mark.parametrize("harm", [truncate, garble])
def test_resume_from_the_one_before(
    harm: Callable[[Path], None], run: Path, whole: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    harm(newest(run / "checkpoint"))
    with caplog.at_level(logging.WARNING):
        resume(run)
    assert "falling back to the one before" in caplog.text
    assert_same(contents(run), whole)
    assert len(checkpoint.load(run / "checkpoint")) == 2  # both are whole again


def test_all_damaged(run: Path, whole: dict[str, Any]) -> None:
    for path in (run / "checkpoint").iterdir():
        truncate(path)
    before = files(run)
    with pytest.raises(SimulationError, match=r"none of the 2 checkpoints in .* can be read.*remove that folder to"):
        resume(run)
    assert files(run) == before
    for path in (run / "checkpoint").iterdir():  # the remedy that the message names
        path.unlink()
    (run / "checkpoint").rmdir()
    resume(run)
    assert_same(contents(run), whole)


class Limit(Callback):
    """From a round on, no file may grow beyond a size: as near to a full disk as a test can get."""

    def __init__(self, round: int, size: int) -> None:
        self.round, self.size = round, size

    def on_start(self, run: Any) -> None:
        self._set(0)

    def on_round(self, metrics: dict[str, Any]) -> None:
        self._set(metrics["round"])

    def _set(self, round: int) -> None:
        if round == self.round:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@pytest.mark.parametrize(
    ("round", "size", "message", "saved"),
    [
        (0, 100_000, r"no room for client state: .*chunk-00000.bin needs \d\d,.* bytes \(File too large\)", [0]),
        (3, 5_000, r"cannot write the checkpoint .*round-0000004.* bytes\): File too large; .*free some space", [2]),
        (3, 1_000, r"cannot write .*metrics.jsonl: File too large; .*continue with `fedasd resume", [2]),
    ],
    ids=["client state", "checkpoint", "metrics"],
)
def test_full_disk(
    round: int, size: int, message: str, saved: list[int], tmp_path: Path, whole: dict[str, Any]
) -> None:
    config: Config = small_config(method="feddyn+asd", out=str(tmp_path))
    error = processes.call(processes.go_on, config, None, (Limit(round, size),))
    assert isinstance(error, SimulationError), error  # and not a signal
    with pytest.raises(SimulationError, match=message):
        raise error
    assert [content["state"]["round"] for content in checkpoint.load(tmp_path / "checkpoint")] == saved
    assert not list(tmp_path.rglob("*.tmp"))
    resume(tmp_path)
    assert_same(contents(tmp_path), whole)

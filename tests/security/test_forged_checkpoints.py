"""Checkpoints that somebody made up, with a right checksum: passed over in one line, whatever is in them."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedasd_fast.simulation import SimulationError, resume, simulate
from fedasd_fast.simulation.storage import checkpoint

from ..simulation.small_runs import small_config
from .conftest import Fedasd

Content = dict[str, Any]


def forge(folder: Path, data: bytes, round: int = 4) -> None:
    """In place of the newest checkpoint."""
    for path in folder.glob(f"round-{round:07d}-*"):
        path.unlink()
    (folder / f"round-{round:07d}-{hashlib.sha256(data).hexdigest()[:16]}.pt").write_bytes(data)


def packed(content: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def bomb() -> bytes:
    """A megabyte that unpacks to a gigabyte."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("archive/data.pkl", "w") as file:
        for _ in range(64):
            file.write(bytes(1 << 24))
    return buffer.getvalue()


def state(**changes: Any) -> Callable[[Content], Any]:
    return lambda content: {**content, "state": {**content["state"], **changes}}


def clients(*numbers: Any) -> Callable[[Content], Any]:
    names = ("clients", "slots")
    return lambda content: {**content, "clients": dict(zip(names, numbers, strict=True))}


FORGED: dict[str, tuple[Callable[[Content], Any], str]] = {
    "no mapping": (lambda content: [content], "holds no mapping"),
    "a tensor": (lambda content: torch.zeros(3), "holds no mapping"),
    "empty": (lambda content: {}, "lacks 'state'"),
    "no config": (lambda content: {k: v for k, v in content.items() if k != "config"}, "lacks 'config'"),
    "config a number": (lambda content: {**content, "config": 3}, "'config' is no text"),
    "no threads": (lambda content: {**content, "threads": 0}, "threads = 0"),
    "a million threads": (lambda content: {**content, "threads": 10**6}, "threads = 1000000"),
    "threads a text": (lambda content: {**content, "threads": "1"}, "threads = '1'"),
    "at once": (lambda content: {**content, "at_once": 1 << 40}, "at_once = "),
    "state a list": (lambda content: {**content, "state": []}, "'state' is no mapping"),
    "more state": (state(evil=1), "'state' is no mapping"),
    "another round": (state(round=3), "of round 3"),
    "round true": (state(round=True), "of round True"),
    "cloud a number": (state(cloud=1.0), "'cloud' is no vector"),
    "cloud a matrix": (state(cloud=torch.zeros(2, 2)), "'cloud' is no vector"),
    "cloud too long": (state(cloud=torch.zeros(1 << 10)), "'cloud' has another size"),
    "endless": (state(initial=torch.zeros(1).expand(1 << 40)), "'initial' is no vector"),
    "meta": (state(initial=torch.zeros(1 << 40, device="meta")), "'initial' is no vector"),
    "sparse": (state(sel=torch.zeros(4).to_sparse()), "'sel' is no vector"),
    "change of floats": (state(all_change=torch.zeros(3)), "'all_change' is no vector"),
    "server": (state(server={"h": torch.zeros(2)}), "the server's 'h'"),
    "server a list": (state(server=[1]), "'server' is no mapping"),
    "clients a number": (lambda content: {**content, "clients": 3}, "has no clients and slots"),
    "no shard": (lambda content: {**content, "clients": []}, "no records"),
    "below 0": (clients(torch.tensor([1]), torch.tensor([-1])), "slots below 0"),
    "twice": (clients(torch.tensor([1, 2]), torch.tensor([0, 0])), "slots twice"),
    "lengths": (clients(torch.tensor([1, 2]), torch.tensor([0])), "2 clients, but 1 slots"),
    "lists": (clients([1], [0]), "no vector"),
}


@pytest.mark.parametrize("kind", FORGED)
def test_the_one_before_it_is_used(run: Path, caplog: pytest.LogCaptureFixture, kind: str) -> None:
    change, message = FORGED[kind]
    newest, before = checkpoint.load(run / "checkpoint")
    forge(run / "checkpoint", packed(change(newest)))
    (kept,) = checkpoint.load(run / "checkpoint")
    assert kept["state"]["round"] == before["state"]["round"]
    (line,) = caplog.messages
    assert message in line
    assert "falling back" in line


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", bytes(1000), b"\x80\x02}q\x00.", bomb()])
def test_no_archive_that_torch_wrote(run: Path, caplog: pytest.LogCaptureFixture, data: bytes) -> None:
    forge(run / "checkpoint", data)
    assert len(checkpoint.load(run / "checkpoint")) == 1
    assert len(caplog.messages) == 1


def test_the_run_goes_on_from_the_one_before_with_the_same_result(run: Path, tmp_path: Path) -> None:
    forge(run / "checkpoint", packed({"state": 3}))
    whole = simulate(small_config(out=str(tmp_path / "whole"), rounds=6))
    assert torch.equal(resume(run, {"rounds": 6}).models["cloud"], whole.models["cloud"])


@pytest.mark.parametrize(
    "changes",
    [
        {"server": {"h": torch.zeros(293, dtype=torch.float64)}},
        {"all_change": None},
        {name: torch.zeros(293, dtype=torch.float64) for name in ("initial", "cloud", "sel")},
        {"initial": torch.zeros(5), "cloud": torch.zeros(5), "sel": torch.zeros(5), "all_change": None},
    ],
)
def test_the_state_of_another_run(run: Path, changes: dict[str, Any]) -> None:
    newest = checkpoint.load(run / "checkpoint")[0]
    assert len(newest["state"]["initial"]) == 293
    forge(run / "checkpoint", packed(state(**changes)(newest)))
    with pytest.raises(SimulationError, match=r"the checkpoint (was not written by|has 5 parameters)"):
        resume(run, {"rounds": 5})


@pytest.mark.parametrize("text", ["", "[1]", "rounds: [", "a: &a [*a]", "model: 3", "rounds: x"])
def test_the_configuration_in_it(fedasd: Fedasd, run: Path, text: str) -> None:
    forge(run / "checkpoint", packed({**checkpoint.load(run / "checkpoint")[0], "config": text}))
    code, _, said = fedasd("resume", str(run), "rounds=5", "--quiet")
    assert code == 2
    assert said.count("\n") == 1


class TestInPlaceOfACheckpoint:
    def name(self, run: Path) -> Path:
        (path,) = (run / "checkpoint").glob("round-0000004-*.pt")
        path.unlink()
        return path

    def test_a_folder(self, run: Path, caplog: pytest.LogCaptureFixture) -> None:
        path = self.name(run)
        path.mkdir()
        assert resume(run, {"rounds": 6}).metrics[-1]["round"] == 6
        assert "is not a regular file" in caplog.messages[0]
        assert path.is_dir()

    def test_a_pipe(self, run: Path, caplog: pytest.LogCaptureFixture) -> None:
        os.mkfifo(self.name(run))
        assert resume(run, {"rounds": 6}).metrics[-1]["round"] == 6
        assert "is not a regular file" in caplog.messages[0]

    def test_an_endless_file(self, run: Path, caplog: pytest.LogCaptureFixture) -> None:
        self.name(run).symlink_to("/dev/zero")
        assert resume(run, {"rounds": 6}).metrics[-1]["round"] == 6
        assert "is not a regular file" in caplog.messages[0]

    def test_all_of_them(self, fedasd: Fedasd, run: Path) -> None:
        for path in (run / "checkpoint").iterdir():
            path.unlink()
            path.mkdir()
        code, _, said = fedasd("resume", str(run), "rounds=5", "--quiet")
        assert code == 2
        assert "can be read" in said.splitlines()[-1]

    def test_a_file_in_place_of_their_folder(self, fedasd: Fedasd, run: Path) -> None:
        for path in (run / "checkpoint").iterdir():
            path.unlink()
        (run / "checkpoint").rmdir()
        (run / "checkpoint").write_text("")
        code, _, said = fedasd("resume", str(run), "rounds=5", "--quiet")
        assert code == 2
        assert said.count("\n") == 1
        assert "cannot write the checkpoint" in said

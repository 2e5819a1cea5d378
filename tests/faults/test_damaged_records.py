"""A byte of a client's record that is not what it was: an error that names client and file, whoever reads it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from fedasd_fast.analysis.loaded_run import load_run
from fedasd_fast.cli import main
from fedasd_fast.simulation import SimulationError, replay, resume, simulate
from fedasd_fast.simulation.storage import checkpoint
from tests.simulation import rank_processes as ranks
from tests.simulation.small_runs import assert_same, contents, small_config


def settings(out: Path, **changes: Any) -> Any:
    """Every client takes part in every round."""
    return small_config(method="feddyn", participation=1.0, rounds=2, threads=1, out=str(out), **changes)


def damage(snapshot: dict[str, Any], file: Path, client: int, harm: str) -> None:
    slot = int(snapshot["slots"][snapshot["clients"].tolist().index(client)])
    size = 2 * 293 * 4  # h and upload
    data = bytearray(file.read_bytes())
    place = slot * size + 100
    data[place : place + 8] = bytes(8) if harm == "zeroed" else bytes([data[place] ^ 16]) + data[place + 1 : place + 8]
    file.write_bytes(data)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    simulate(settings(tmp_path / "run"))
    return tmp_path / "run"


@pytest.mark.parametrize("harm", ["flipped", "zeroed"])
@pytest.mark.parametrize("executor", ["serial", "stacked", "processes"])
def test_one_machine(executor: str, harm: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = run / "clients" / "chunk-00000.bin"
    (newest, *_) = checkpoint.load(run / "checkpoint")
    damage(newest["clients"], file, 7, harm)
    message = rf"record of client 7 is damaged: {file} has another checksum than the checkpoint says .*; restore that"
    changes = {"rounds": 3, "workers": 2} | ({} if executor == "stacked" else {"executor": executor})
    if executor == "stacked":
        shutil.rmtree(run)
        simulate(settings(run, executor="stacked", clients_at_once=4))
        (newest, *_) = checkpoint.load(run / "checkpoint")
        damage(newest["clients"], file, 7, harm)
    for _ in range(2):  # the checkpoint that is written when it stops does not hide it
        with pytest.raises(SimulationError, match=message):
            resume(run, changes)
    assert main(["resume", str(run), "rounds=3"]) != 0
    assert "record of client 7 is damaged" in capsys.readouterr().err
    if executor == "serial":
        with pytest.raises(SimulationError, match=message):
            replay(run, 3, 7)
        with pytest.raises(SimulationError, match=message):
            load_run(run).context.records.read(7)
    shutil.rmtree(run / "checkpoint")  # the remedy
    resume(run, changes)
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize("reading", ["as many ranks", "stacked ranks", "one process"])
def test_ranks(reading: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    at_once = 3 if reading == "stacked ranks" else 1
    config = settings(out, executor="torchrun", clients_at_once=at_once)
    assert ranks.together(2, ranks.run, config) == ["finished"] * 2
    (newest, *_) = checkpoint.load(out / "checkpoint")
    file = out / "clients" / "rank-1-of-2" / "chunk-00000.bin"
    damage(newest["clients"][1], file, 7, "flipped")
    if reading == "one process":
        with pytest.raises(SimulationError, match=rf"record of client 7 is damaged: {file}"):
            resume(out, {"rounds": 3, "executor": "serial"})
        return
    found = ranks.together(2, ranks.go_on, str(out), {"rounds": 3})
    assert f"record of client 7 is damaged: {file}" in str(found[1])
    assert all(isinstance(error, SimulationError) for error in found)


def test_a_checkpoint_without_checksums_goes_on(run: Path, tmp_path: Path) -> None:
    simulate(settings(tmp_path / "whole").replace(rounds=4))
    (newest, *_) = checkpoint.load(run / "checkpoint")
    del newest["clients"]["checksums"]
    for path in (run / "checkpoint").iterdir():
        os.remove(path)
    checkpoint.save(run / "checkpoint", 2, newest)
    resume(run, {"rounds": 4})
    assert_same(contents(run), contents(tmp_path / "whole"))
    (newest, *_) = checkpoint.load(run / "checkpoint")
    assert torch.all(newest["clients"]["checksums"] >= 0)

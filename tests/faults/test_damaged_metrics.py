"""One bad byte in metrics.jsonl costs its own row at most, through the command that continues the run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fedasd_fast.cli import main
from fedasd_fast.simulation import simulate
from tests.simulation.small_runs import small_config


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("metrics") / "run"
    simulate(small_config(out=str(out), rounds=100, participation=0.1, eval_every=100, checkpoint_every=50))
    return out


@pytest.mark.parametrize("byte", [0x00, 0xFF, ord("}"), ord("\n")], ids=["zero", "not UTF-8", "brace", "line end"])
def test_ninety_nine_rows_stay(byte: int, finished: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    path = run / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    rows = [json.loads(line) for line in lines]
    assert len(rows) == 100
    lines[2] = lines[2][:5] + bytes([byte]) + lines[2][6:]
    damaged = b"".join(lines)
    path.write_bytes(damaged)
    assert main(["resume", str(run), "rounds=101", "--quiet"]) == 0
    kept = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert kept[:99] == rows[:2] + rows[3:]
    assert [row["round"] for row in kept[99:]] == [101]
    assert (run / "metrics.jsonl.damaged").read_bytes() == damaged
    assert "metrics.jsonl, line 3, is left out" in caplog.text
    assert "metrics.jsonl lacks 1 of the 100 rounds done" in caplog.text

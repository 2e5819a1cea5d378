"""A run from Python leaves what the command line leaves, and loses nothing if its report fails."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

import fedasd_fast as fa
from fedasd_fast.cli.main import main
from tests.simulation.small_runs import small_config

SETTINGS = ["rounds=2", "clients=10", "participation=0.3", "local_epochs=1", "executor=serial"]


def names(folder: Path) -> set[str]:
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return {name for name in found if not name.startswith(("checkpoint/", "clients/"))}


def test_python_and_the_command_line_leave_the_same(tmp_path: Path) -> None:
    result = fa.simulate(fa.presets.load("quickstart", SETTINGS).replace(out=str(tmp_path / "python")))
    assert main(["run", "quickstart", *SETTINGS, "--out", str(tmp_path / "command"), "--quiet"]) == 0
    assert names(tmp_path / "python") == names(tmp_path / "command")
    assert {"summary.txt", "accuracy.png", "report.html", "figures/accuracy.svg"} <= names(tmp_path / "python")
    assert "2 of 2 rounds" in (tmp_path / "python" / "summary.txt").read_text()

    longer = fa.resume(tmp_path / "python", {"rounds": 3})
    assert len(longer.metrics) == len(result.metrics) + 1
    assert "3 of 3 rounds" in (tmp_path / "python" / "summary.txt").read_text()


def test_without_a_directory_or_a_report_nothing_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedasd_fast.api.write_run_outputs", lambda run: pytest.fail("drawn"))
    fa.simulate(small_config(rounds=1))
    fa.simulate(small_config(rounds=1, out=str(tmp_path / "run")), report=False)
    assert "report.html" not in names(tmp_path / "run")


def test_a_report_that_fails_costs_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run" / "report.html").mkdir(parents=True)  # a folder in its place
    with caplog.at_level(logging.WARNING):
        result = fa.simulate(small_config(rounds=1, out=str(tmp_path / "run")))
    assert torch.isfinite(result.models["cloud"]).all()
    assert "the run is complete, but its report could not be written" in caplog.text

"""The tables in docs/results are what the metrics beside them say."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fedasd_fast import simulate
from fedasd_fast.analysis.loaded_run import opened
from fedasd_fast.cli.main import main
from fedasd_fast.simulation.storage.recorded_run import read

from .simulation.small_runs import small

DOCS = Path(__file__).parents[1] / "docs"
GRIDS = sorted(path.parent for path in (DOCS / "results").glob("*/report.json"))


@pytest.mark.parametrize("folder", GRIDS, ids=lambda path: path.name)
def test_report(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "docs" / "results" / folder.name
    shutil.copytree(folder, there)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDASD_DATA", str(tmp_path))  # the page does without the dataset
    before = json.loads((there / "report.json").read_text())
    (there / "report.md").unlink()
    assert main([*shlex.split(before["command"])[1:], "--report"]) == 0
    assert json.loads((there / "report.json").read_text()) == before
    tables = re.findall(r"^\|.*\|$", (there / "report.md").read_text(), re.MULTILINE)
    said = (DOCS / "results.md").read_text()
    assert tables
    assert not [line for line in tables if line not in said]


@pytest.mark.parametrize("path", sorted((DOCS / "results").rglob("config.yaml")), ids=lambda path: path.parent.name)
def test_runs_can_be_repeated_anywhere(path: Path) -> None:
    run = read(path.parent)
    assert run.metrics
    assert run.config.data_dir is None
    assert not Path(run.config.out or "").is_absolute()


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (DOCS / "results.md").read_text())
    assert [link for link in links if not link.startswith("http") and not (DOCS / link).exists()] == []


def test_takeover_finds_a_class_that_was_made_to_win(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate(small(out=str(tmp_path / "run")))
    run = opened(tmp_path / "run")
    cloud = run.state.cloud.clone()
    cloud[1 - run.context.experiment.data.num_classes] += 50  # the last layer's biases come last: that of class 1
    capsys.readouterr()
    runpy.run_path(str(DOCS / "results" / "takeover.py"))["main"](replace(run, state=replace(run.state, cloud=cloud)))
    first, second, *changes = capsys.readouterr().out.splitlines()
    found, of = map(int, re.findall(r"class 1 is predicted for (\d+) of (\d+) ", first)[0])
    assert found == of
    assert float(re.findall(r"logit is (\S+) above", second)[0]) == pytest.approx(50, abs=10)
    change = {line[2:32].strip(): float(line[32:].split()[0]) for line in changes}
    assert list(change) == ["FedAvg", "FedAvg+ASD", "FedAvg+ASD, uniform weights", "FedNTD", "FedNTD+ASD"]
    assert change["FedAvg"] < 0

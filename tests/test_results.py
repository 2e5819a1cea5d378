"""The tables in docs/results are what the metrics beside them say."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from fedasd_fast.cli.main import main
from fedasd_fast.common import compact_json
from fedasd_fast.simulation.storage.recorded_run import read_run

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
def test_runs_can_be_repeated_on_another_machine(path: Path) -> None:
    run = read_run(path.parent)
    assert run.metrics
    assert run.config.data_dir is None
    assert not Path(run.config.out or "").is_absolute()


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (DOCS / "results.md").read_text())
    assert [link for link in links if not link.startswith("http") and not (DOCS / link).exists()] == []


@pytest.mark.parametrize(
    "path", sorted((DOCS / "results").rglob("analysis/*.json")), ids=lambda path: f"{path.parts[-3]}-{path.stem}"
)
def test_analyses_are_saved_in_the_compact_form(path: Path) -> None:
    text = path.read_text()
    assert compact_json.dumps(json.loads(text)) == text

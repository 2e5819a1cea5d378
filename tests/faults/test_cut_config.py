"""A config.yaml that was cut short never goes on with defaults for what is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from fedasd_fast.cli import main
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import from_yaml
from fedasd_fast.simulation import SimulationError, replay, resume, simulate
from fedasd_fast.simulation.storage.recorded_run import read_run
from tests.simulation.small_runs import small_config

REFUSED = r"config.yaml was cut short(: it (lacks \w+|has no end)|, or damaged).*; restore it from a copy, or start"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All settings but the first ones are the defaults: a cut shows in nothing but what is missing."""
    out = tmp_path_factory.mktemp("cut") / "run"
    simulate(small_config(out=str(out), rounds=2))
    return out


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_cut_anywhere_before_the_first_checkpoint(run: Path) -> None:
    shutil.rmtree(run / "checkpoint")
    (run / "checkpoint").mkdir()  # it died while the first was being written
    whole = (run / "config.yaml").read_bytes()
    for end in range(0, len(whole), 7):
        (run / "config.yaml").write_bytes(whole[:end])
        if whole[end:].startswith(b"#"):
            continue  # all settings are there: what an older version wrote
        with pytest.raises(SimulationError, match=REFUSED):
            resume(run)
        with pytest.raises(SimulationError, match=REFUSED):
            replay(run, 1, 0)
    (run / "config.yaml").write_bytes(whole)
    assert len(resume(run).metrics) == 2


def test_one_line(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(run / "checkpoint")
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text[: text.index("rounds:")])
    assert main(["resume", str(run)]) != 0
    said = capsys.readouterr().err
    assert "was cut short: it lacks rounds, local_epochs, batch_size and more; restore it" in said
    assert "Traceback" not in said


def test_cut_after_a_checkpoint(run: Path) -> None:
    """Settings that are free to change, such as the number of rounds, would be lost without a word."""
    whole = (run / "config.yaml").read_text()
    lines = whole.splitlines(keepends=True)
    for count in range(len(lines) - 1):
        (run / "config.yaml").write_text("".join(lines[:count]))
        with pytest.raises((SimulationError, ConfigError)):
            resume(run)
    (run / "config.yaml").write_text(whole)
    assert len(resume(run).metrics) == 2


def test_older_versions_wrote_no_end(run: Path) -> None:
    shutil.rmtree(run / "checkpoint")
    settings = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    assert len(resume(run).metrics) == 2
    assert (run / "config.yaml").read_text().endswith("# end of the settings\n")


def test_settings_changed_by_hand_keep_the_end(run: Path) -> None:
    path = run / "config.yaml"
    path.write_text(path.read_text().replace("rounds: 2", "rounds: 3"))
    assert len(resume(run).metrics) == 3
    assert from_yaml(path) == read_run(run).config

"""A system that is short of something when workers start: one line with the remedy, and nothing is left running."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fedasd_fast.simulation import SimulationError
from fedasd_fast.simulation.system.start_errors import start_errors

WORDS = (
    "run quickstart rounds=1 clients=10 participation=0.5 synthetic.test_samples=50 executor=processes workers=2 "
    "--quiet --out"
)


def run(tmp_path: Path, first: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, after some Python."""
    out = tmp_path / "run"
    script = f"import sys\n{first}\nfrom fedasd_fast.cli import main\nsys.exit(main({[*WORDS.split(), str(out)]!r}))"
    clean = {key: value for key, value in os.environ.items() if key not in ("TMPDIR", "FEDASD_DEBUG")}
    root = str(Path(__file__).parents[2])
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**clean, "PYTHONPATH": root, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def assert_one_line(found: subprocess.CompletedProcess[str], *words: str) -> None:
    assert found.returncode == 2, found.stderr
    assert found.stderr.count("\n") == 1, found.stderr
    for word in ("fedasd: worker processes cannot start", *words):
        assert word in found.stderr


@pytest.mark.parametrize("number", [16, 22, 25])
def test_few_file_descriptors(tmp_path: Path, number: int) -> None:
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({number}, {number}))"
    found = run(tmp_path, limit)
    if number == 16 or found.returncode:  # with a few more it depends on how many are open already
        assert_one_line(found, f"no more than {number} files may be open", "ulimit -n", "workers")


def test_a_long_temporary_directory(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 110)
    folder.mkdir()
    assert_one_line(run(tmp_path, TMPDIR=str(folder)), "that of a socket in it may have 107", "set TMPDIR to a shorter")


def test_a_temporary_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(SimulationError, match=r"there is no temporary directory .*set TMPDIR"), start_errors(2):
        tempfile.mkdtemp()  # as multiprocessing does for its sockets


def test_a_wrong_tmpdir_does_no_harm(tmp_path: Path) -> None:
    found = run(tmp_path, TMPDIR=str(tmp_path / "never"))  # Python then uses another
    assert found.returncode == 0, found.stderr

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedasd_fast.cli import main

SMALL_SETTINGS = (
    "rounds=2",
    "clients=10",
    "participation=0.3",
    "local_epochs=1",
    "synthetic.test_samples=50",
    "eval_every=1",
)
Fedasd = Callable[..., tuple[int, str, str]]


@pytest.fixture
def fedasd(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Fedasd:
    """The command in an empty folder; gives exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDASD_DEBUG", raising=False)
    monkeypatch.setenv("FEDASD_DATA", str(tmp_path / "data"))

    def call(*words: str) -> tuple[int, str, str]:
        try:
            code = main(words)
        except SystemExit as stop:
            code = int(stop.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return call

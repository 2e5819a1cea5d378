"""`make soak` in small, and that it notices what it is for."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks import soak
from fedasd_fast.simulation import simulate


@pytest.mark.parametrize("executor", ["serial", "processes"])
def test_nothing_grows(tmp_path: Path, executor: str) -> None:
    watch = soak.soak(200, executor, tmp_path / "run")
    problems = watch.problems()
    assert [problem for problem in problems if "a round takes" not in problem] == [], (
        watch
    )  # time needs an idle machine
    assert len(watch.seconds) == 200


class Leak(soak.Watch):
    """Keeps a file open, and memory, in every round; and says that rounds take longer and longer."""

    def on_round(self, metrics: dict[str, Any]) -> None:
        self.files = [*getattr(self, "files", ()), os.open(os.devnull, os.O_RDONLY)]
        page = mmap.mmap(-1, 2 << 20)  # fresh: what the tests before this one freed might serve an allocator for long
        page.write(os.urandom(2 << 20))
        self.memory = [*getattr(self, "memory", ()), page]
        super().on_round({**metrics, "seconds": metrics["round"] * 1.0})


def test_growth_is_noticed(tmp_path: Path) -> None:
    watch = Leak(100)
    try:
        simulate(soak.soak_config(100, "serial", tmp_path / "run"), callbacks=[watch])
        problems = "; ".join(watch.problems())  # the time of a round too, if the machine is quiet enough to tell
        assert "memory grew by" in problems
        assert "open files" in problems
    finally:
        for descriptor in watch.files:
            os.close(descriptor)


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "SLOWER", 100.0)
    assert soak.main(["--rounds", "100"]) == 0
    assert "100 rounds" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        soak.main(["--rounds", "10"])

"""A run directory that is moved or deleted while the run goes on is not made anew; the run says so and stops."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from fedasd_fast.callbacks import Callback
from fedasd_fast.simulation import SimulationError, resume, simulate
from fedasd_fast.simulation.storage import record_chunks
from tests.simulation.small_runs import assert_same, contents, small_config

NOTICED = r"/run(/clients)? was moved or deleted while the run went on.*; if it was moved, continue it with"


class Harm(Callback):
    """Does something to the run directory after a round."""

    def __init__(self, run: Path, how: str, round: int) -> None:
        self.run, self.how, self.round = run, how, round

    def on_start(self, run: Any) -> None:
        if self.round == 0:
            self.harm()

    def on_round(self, row: dict[str, Any]) -> None:
        if row["round"] == self.round:
            self.harm()

    def harm(self) -> None:
        if self.how == "deleted":
            shutil.rmtree(self.run)
        else:
            self.run.rename(self.run.with_name("moved"))
        if self.how == "replaced":
            self.run.mkdir()


@pytest.mark.parametrize("how", ["moved", "deleted", "replaced"])
@pytest.mark.parametrize(
    ("executor", "round"), [("serial", 0), ("serial", 3), ("serial", 4), ("serial", 7), ("processes", 3)]
)
def test_noticed(executor: str, how: str, round: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_chunks, "_CHUNK_BYTES", 3 * 293 * 4)  # new files all the time
    run = tmp_path / "run"
    config = small_config(out=str(run), executor=executor, workers=2, threads=1)
    with pytest.raises(SimulationError, match=NOTICED):
        simulate(config, callbacks=[Harm(run, how, round)])
    if how == "replaced":
        assert list(run.iterdir()) == []
    else:
        assert not run.exists()


def test_a_moved_run_goes_on_at_its_new_place(tmp_path: Path) -> None:
    simulate(small_config(method="feddyn", out=str(tmp_path / "whole")))
    with pytest.raises(SimulationError, match=NOTICED):
        simulate(
            small_config(method="feddyn", out=str(tmp_path / "run")), callbacks=[Harm(tmp_path / "run", "moved", 5)]
        )
    resume(tmp_path / "moved")
    assert_same(contents(tmp_path / "moved"), contents(tmp_path / "whole"))


def test_a_moved_run_that_is_asked_to_stop(tmp_path: Path) -> None:
    """What cannot be saved any more is said, and nothing is made anew."""

    class MovedAndFailing(Harm):
        def harm(self) -> None:
            super().harm()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        simulate(small_config(out=str(tmp_path / "run")), callbacks=[MovedAndFailing(tmp_path / "run", "moved", 3)])
    assert not (tmp_path / "run").exists()

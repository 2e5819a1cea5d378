"""A run that is killed at any moment and resumed ends with the bits of one that never stopped."""

from __future__ import annotations

import json
import logging
import os
import random
import re
import shutil
import signal
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from fedasd_fast.config import Config, from_yaml
from fedasd_fast.report.run_details import versions_text
from fedasd_fast.simulation import SimulationError, resume, simulate
from fedasd_fast.simulation.storage import checkpoint
from fedasd_fast.simulation.storage.client_store import ClientStore
from fedasd_fast.simulation.storage.recorded_run import read_run
from fedasd_fast.simulation.storage.run_directory import RunDirectory
from fedasd_fast.simulation.system.versions import versions
from tests.simulation import subprocess_runs as processes
from tests.simulation.small_runs import assert_same, contents, files, small_config, without_times

METHODS = ("fedavg+asd", "feddyn+asd")


def longer(method: str, out: Path) -> Config:
    """About 30 rounds of some tens of milliseconds, 4,000 parameters."""
    return small_config(
        method=method, clients=40, participation=0.2, rounds=30, local_epochs=2, checkpoint_every=3, out=str(out),
        synthetic={"shape": [32], "classes": 10}, model_args={"hidden": [64, 32]}, failures={"stragglers": 0.3},
    )  # fmt: skip


@pytest.fixture(scope="module", params=METHODS)
def unbroken(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    out = tmp_path_factory.mktemp("unbroken") / "run"
    assert processes.call(processes.go_on, longer(request.param, out)) == "finished"
    found = contents(out)
    assert found["round"] == len(found["metrics"]) == 30
    assert len(found["records"]) > 35
    return request.param, found


def test_killed_at_random_moments(unbroken: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    method, expected = unbroken
    config, delays = longer(method, tmp_path / "run"), random.Random(METHODS.index(method))
    metrics, killed = tmp_path / "run" / "metrics.jsonl", 0
    for _ in range(6):
        process, pipe = processes.start(processes.go_on, config)
        begun, rows = rounds(metrics), delays.randint(0, 4)
        while process.is_alive() and rounds(metrics) < begun + rows:
            time.sleep(0.002)
        time.sleep(delays.uniform(0, 0.03))
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        pipe.close()
        killed += process.exitcode == -signal.SIGKILL
    assert killed >= 3, "ended before it was killed: the test tests nothing"
    assert processes.call(processes.go_on, config) == "finished"
    assert_same(contents(config.out), expected)


def rounds(metrics: Path) -> int:
    return metrics.read_text().count("\n") if metrics.exists() else 0


def test_killed_where_it_hurts_most(unbroken: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    method, expected = unbroken
    config = longer(method, tmp_path / "run")
    faults = [
        ("half a record", 5),  # before the first checkpoint
        ("old checkpoints not deleted", 3),
        ("metrics not checkpointed", 6),
        ("checkpoint not renamed", 6),
        ("old checkpoints not deleted", 9),
        ("half a record", 20),
        ("half a row of metrics", 12),
        ("half a checkpoint", 12),
        ("old checkpoints not deleted", 15),
        ("metrics not checkpointed", 20),
        ("half a record", 15),
    ]
    for fault in faults:
        assert processes.call(processes.go_on, config, fault) == signal.SIGKILL, f"did not get to {fault}"
    newest = max((tmp_path / "run" / "checkpoint").glob("round-*.pt"))
    assert newest.name.startswith("round-0000018")
    newest.write_bytes(newest.read_bytes()[:-1])  # what was written since must not have harmed the one before
    assert processes.call(processes.go_on, config) == "finished"
    assert_same(contents(config.out), expected)
    left = sorted(path.name[:13] for path in (tmp_path / "run" / "checkpoint").iterdir())
    assert left == ["round-0000027", "round-0000030"]  # no temporary file, no third one


def test_killed_while_the_folder_is_locked(tmp_path: Path) -> None:
    config = longer("fedavg", tmp_path / "run")
    process, pipe = processes.start(processes.go_on, config)
    while not (tmp_path / "run" / "metrics.jsonl").exists():
        time.sleep(0.01)
    with pytest.raises(SimulationError, match=rf"run is in use by process {process.pid}; wait for it or stop it"):
        resume(tmp_path / "run")
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    pipe.close()
    with RunDirectory(tmp_path / "run"):  # free as soon as the process is gone
        pass


@pytest.mark.parametrize("method", METHODS)
def test_metrics_that_cannot_be_written(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The round is trained already, and its clients' records written: they must not be in the checkpoint."""
    simulate(small_config(method=method, out=str(tmp_path / "whole")))
    append = RunDirectory.append_metrics

    def fails(self: RunDirectory, row: dict[str, Any]) -> None:
        if row["round"] == 4:
            raise self._cannot_write("metrics.jsonl", OSError(28, "No space left on device"))
        append(self, row)

    monkeypatch.setattr(RunDirectory, "append_metrics", fails)
    with pytest.raises(SimulationError, match=r"metrics.jsonl: No space left on device.*`fedasd resume"):
        simulate(small_config(method=method, out=str(tmp_path / "run")))
    monkeypatch.undo()
    result = resume(tmp_path / "run")
    assert_same(contents(tmp_path / "run"), contents(tmp_path / "whole"))
    assert [row["round"] for row in result.metrics] == [1, 2, 3, 4, 5, 6, 7]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    simulate(small_config(out=str(out)))
    return out


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


class TestSettings:
    """What may change when a run goes on, and what may not."""

    def test_changed_settings_are_refused(self, run: Path) -> None:
        text = (run / "config.yaml").read_text().replace("seed: 0", "seed: 3").replace("  lr: 0.1", "  lr: 0.2")
        (run / "config.yaml").write_text(text)
        before = files(run)
        with pytest.raises(
            SimulationError,
            match=r"settings changed.*: optimizer.lr = 0.2 \(was 0.1\), seed = 3 \(was 0\); put them back",
        ):
            resume(run)
        assert files(run) == before

    def test_changes_are_refused_before_the_first_checkpoint_too(self, run: Path) -> None:
        shutil.rmtree(run / "checkpoint")
        with pytest.raises(SimulationError, match=r"seed = 3 \(was 0\)"):
            resume(run, {"seed": 3})

    def test_settings_that_came_later_were_at_their_defaults(self, run: Path) -> None:
        """A run of an older version goes on; one that wants something else than it had does not."""
        (kept, *_) = checkpoint.load(run / "checkpoint")
        settings = yaml.safe_load(kept["config"])
        del settings["clients_at_once"], settings["asd"]["divergence"]
        checkpoint.save(run / "checkpoint", 7, {**kept, "config": yaml.safe_dump(settings)})
        (run / "config.yaml").write_text(yaml.safe_dump(settings))
        assert len(resume(run, {"rounds": 8}).metrics) == 8
        with pytest.raises(SimulationError, match=r"clients_at_once = 2 \(was 0\)"):
            resume(run, {"clients_at_once": 2, "rounds": 9})

    def test_more_rounds(self, run: Path, tmp_path: Path) -> None:
        more = resume(run, {"rounds": 9, "checkpoint_every": 4, "name": "longer"})
        at_once = simulate(small_config(rounds=9, out=str(tmp_path / "at once")))
        assert without_times(more.metrics) == without_times(at_once.metrics)
        assert all(torch.equal(more.models[name], at_once.models[name]) for name in ("all", "sel", "cloud"))
        saved = from_yaml(run / "config.yaml")
        assert (saved.rounds, saved.name) == (9, "longer")

    def test_fewer_rounds_than_done(self, run: Path) -> None:
        with pytest.raises(SimulationError, match=r"rounds = 5, but 7 are done; set rounds to that or more"):
            resume(run, {"rounds": 5})
        assert from_yaml(run / "config.yaml").rounds == 7

    def test_versions_are_of_the_rounds_that_they_ran(self, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def rows() -> list[dict[str, Any]]:
            found = [json.loads(line) for line in (run / "versions.jsonl").read_text().splitlines()]
            dates.update(row.pop("date") for row in found)
            return found

        dates: set[str] = set()
        assert rows() == [{"round": 0, **versions(), "training": "one client at a time"}]
        resume(run, {"rounds": 8})
        assert rows() == [{"round": 0, **versions(), "training": "one client at a time"}]
        newer = {**versions(), "torch": "9.0.0"}
        monkeypatch.setattr("fedasd_fast.simulation.storage.run_directory.versions", lambda: newer)
        resume(run, {"rounds": 9})
        assert rows()[1:] == [{"round": 8, **newer, "training": "one client at a time"}]
        assert all(datetime.fromisoformat(date).tzinfo for date in dates)
        assert versions()["cpu"].endswith("cores") or versions()["cpu"].endswith("1 core")
        said = versions_text(read_run(run))
        assert said.startswith("Run with fedasd_fast ")
        assert re.search(r"; from round 9 on with .*torch 9\.0\.0", said)
        (run / "versions.jsonl").unlink()
        assert versions_text(read_run(run)) == "Run with versions that were not recorded."
        resume(run, {"rounds": 10})
        assert versions_text(read_run(run)).startswith(
            "Run with versions that were not recorded; from round 10 on with fedasd"
        )

    def test_changes_are_kept_without_a_checkpoint(self, run: Path) -> None:
        shutil.rmtree(run / "checkpoint")
        assert len(resume(run, {"rounds": 2}).metrics) == 2
        assert from_yaml(run / "config.yaml").rounds == 2

    def test_a_finished_run_is_not_run_again(self, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = contents(run)
        monkeypatch.setattr("fedasd_fast.simulation.runner.run_round", None)
        result = resume(run)
        assert without_times(result.metrics) == before["metrics"]
        assert_same(contents(run), before)

    def test_another_model(self, run: Path) -> None:
        with pytest.raises(SimulationError, match=r"checkpoint has 293 parameters, the model 65"):
            resume(run, model=torch.nn.Linear(12, 5))

    def test_lost_metrics_are_mentioned(self, run: Path, caplog: pytest.LogCaptureFixture) -> None:
        rows = (run / "metrics.jsonl").read_text().splitlines()
        (run / "metrics.jsonl").write_text("\n".join(rows[:4]) + "\n")
        with caplog.at_level(logging.WARNING):
            assert len(resume(run).metrics) == 4
        assert "lacks 3 of the 7 rounds" in caplog.text

    def test_folder_moved(self, run: Path) -> None:
        moved = run.rename(run.with_name("moved"))
        assert resume(moved).out == moved
        assert not run.exists()

    def test_into_an_existing_run(self, run: Path) -> None:
        before = files(run)
        with pytest.raises(SimulationError, match=r"holds a run already; continue it with `fedasd resume .*run`"):
            simulate(small_config(out=str(run)))
        assert files(run) == before

    def test_client_state_removed(self, run: Path) -> None:
        for path in (run / "clients").iterdir():
            path.unlink()
        with pytest.raises(SimulationError, match=r"lacks the records of \d+ clients: files chunk"):
            resume(run)


def test_not_the_folder_of_a_run(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(SimulationError, match=r"is not a run directory: there is no config.yaml"):
            resume(folder)
    assert list(tmp_path.iterdir()) == []  # not even a lock


def test_without_a_folder_memory_does_not_grow_with_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = set()
    take = ClientStore._take

    def spy(self: ClientStore) -> int:
        slot = take(self)
        taken.add(slot)
        return slot

    monkeypatch.setattr(ClientStore, "_take", spy)
    simulate(small_config(rounds=30, sampling="fixed", eval_every=30))
    assert 12 <= len(taken) <= 12 + 5  # every client, and those of one round


def test_rows_are_complete_json(tmp_path: Path) -> None:
    result = simulate(small_config(rounds=2, out=str(tmp_path)))
    assert [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == result.metrics

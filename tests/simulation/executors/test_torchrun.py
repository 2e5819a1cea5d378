"""Runs on several ranks: the bits of `serial`, the same errors everywhere, and recovery from the loss of any rank."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import Config
from fedasd_fast.simulation import ClientError, Interrupted, replay, resume, sampling, simulate
from fedasd_fast.simulation.cohort import ClientTask, group_tasks, local_steps
from fedasd_fast.simulation.context import build_context
from fedasd_fast.simulation.distributed.process_group import ProcessGroup
from fedasd_fast.simulation.executors.torchrun import TorchrunExecutor, _fingerprint
from fedasd_fast.simulation.storage.recorded_run import read_run
from tests.simulation import rank_processes as ranks
from tests.simulation import subprocess_runs as processes
from tests.simulation.executors.test_processes import METHODS, UNEVEN, wait_for_rounds
from tests.simulation.small_runs import assert_same, contents, small_config

pytestmark = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs gloo")


def spread(out: Path | None, **changes: Any) -> Config:
    return small_config(executor="torchrun", out=str(out) if out else None, **{**UNEVEN, **changes})


def serial(out: Path, **changes: Any) -> dict[str, Any]:
    simulate(small_config(threads=1, executor="serial", out=str(out), **{**UNEVEN, **changes}))
    return contents(out)


@pytest.mark.parametrize("method", METHODS)
def test_any_number_of_ranks_gives_the_bits_of_serial(method: str, tmp_path: Path) -> None:
    expected = serial(tmp_path / "serial", method=method)
    for world in (2, 4):
        out = tmp_path / str(world)
        assert ranks.together(world, ranks.run, spread(out, method=method)) == ["finished"] * world
        assert sorted(path.name for path in (out / "clients").iterdir())[-1] == f"rank-{world - 1}-of-{world}"
        assert_same(contents(out), expected)


def test_clients_that_keep_nothing_are_dealt_out_longest_first(tmp_path: Path) -> None:
    free = {"eval_models": ["sel", "cloud"], "model_args": {"hidden": [600, 120]}}  # where threads would share the work
    expected = serial(tmp_path / "serial", **free)
    assert ranks.together(2, ranks.run, spread(tmp_path / "run", **free)) == ["finished"] * 2
    assert_same(contents(tmp_path / "run"), expected)

    context = build_context(spread(None, clients=60, size_sigma=1.0, **free))
    tasks = [ClientTask(k, 1 + k % 2, 1 / 60) for k in range(60)]
    loads, seen = [], []
    for rank in range(3):
        group = ProcessGroup()
        group.rank, group.world = rank, 3
        groups = group_tasks(context.experiment, tasks, 1)
        mine = [task for part in TorchrunExecutor(context, group)._deal(groups)[rank] for task in part]
        seen += [task.client for task in mine]
        loads.append(int(local_steps(context.experiment, mine).sum()))
    assert sorted(seen) == list(range(60))
    assert max(loads) - min(loads) <= 1


@pytest.mark.parametrize("method", ["fedavg", "feddyn+asd", "scaffold", "fedsmoo+asd"])
def test_stacked_clients_have_the_same_bits_for_any_number_of_ranks(method: str, tmp_path: Path) -> None:
    """Groups are made before they are dealt out, so records travel between the ranks that keep and train a client."""
    stacked = {"method": method, "clients_at_once": 3, "participation": 0.7}
    simulate(small_config(threads=1, executor="stacked", out=str(tmp_path / "stacked"), **UNEVEN, **stacked))
    expected = contents(tmp_path / "stacked")
    assert len(expected["records"]) > 6
    for world in (2, 3):
        out = tmp_path / str(world)
        assert ranks.together(world, ranks.run, spread(out, **stacked, rounds=4)) == ["finished"] * world
        assert ranks.together(world, ranks.go_on, str(out), {"rounds": 7}) == ["finished"] * world
        assert_same(contents(out), expected)


def test_a_failing_client_in_a_group_is_dropped_by_all_ranks(tmp_path: Path) -> None:
    failing = {"clients_at_once": 3, "optimizer": {"lr": 30.0, "clip_norm": None}, "on_client_error": "drop"}
    out = tmp_path / "run"
    assert ranks.together(2, ranks.run, spread(out, rounds=2, **failing)) == ["finished"] * 2
    simulate(small_config(threads=1, executor="stacked", out=str(tmp_path / "one"), **UNEVEN, rounds=2, **failing))
    assert contents(out)["metrics"][0]["failed"] == contents(tmp_path / "one")["metrics"][0]["failed"]


def test_auto_means_torchrun_where_torchrun_started_the_process(tmp_path: Path) -> None:
    expected = serial(tmp_path / "serial")
    config = spread(tmp_path / "run").replace(executor="auto")
    assert ranks.together(2, ranks.run, config) == ["finished"] * 2
    assert_same(contents(tmp_path / "run"), expected)


def test_commands_of_several_runs(tmp_path: Path) -> None:
    """Rank 0 decides and prints; the others take part in its runs, finished, longer and new ones."""
    words = ["compare", "quickstart", "clients=40", "--out", str(tmp_path), "--quiet"]
    for rounds, methods in ((1, "fedavg"), (2, "fedavg,feddyn+asd"), (2, "fedavg")):
        assert ranks.together(2, ranks.command, [*words, f"rounds={rounds}", "--methods", methods]) == [0, 0]
    assert (tmp_path / "compare.png").exists()
    for method in ("fedavg", "feddyn+asd"):
        run = read_run(tmp_path / f"{method}-seed0")
        assert (run.rounds, run.config.executor) == (2, "torchrun")
    refused = ranks.together(
        2, ranks.command, ["reproduce", "quickstart", "--dry-run", "--out", str(tmp_path / "grid")]
    )
    assert refused[0] == 2


def test_continued_by_other_numbers_of_ranks(tmp_path: Path) -> None:
    """Records move to their new owners; replay reads them wherever they are."""
    expected = serial(tmp_path / "serial", method="feddyn+asd")
    out = tmp_path / "run"
    assert ranks.together(4, ranks.run, spread(out, method="feddyn+asd", rounds=3)) == ["finished"] * 4
    assert ranks.together(2, ranks.go_on, str(out), {"rounds": 4}) == ["finished"] * 2
    assert ranks.together(2, ranks.go_on, str(out), {"rounds": 5}) == ["finished"] * 2
    for client in sampling.participants(spread(out), 4).tolist()[:2]:
        assert replay(out, 5, client).losses == replay(tmp_path / "serial", 5, client).losses
    resume(out, {"rounds": 6, "executor": "processes", "workers": 2})
    assert ranks.together(4, ranks.go_on, str(out), {"rounds": 7, "executor": "torchrun"}) == ["finished"] * 4
    assert_same(contents(out), expected)


class TestErrors:
    def test_not_started_by_torchrun(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"for runs that torchrun starts: `torchrun --nproc-per-node=2"):
            simulate(spread(tmp_path / "run"))
        assert not list(tmp_path.iterdir())

    def test_ranks_with_other_settings(self, tmp_path: Path) -> None:
        answers = ranks.together(2, ranks.run_with_other_seed, spread(tmp_path / "run"), of={1: (5,)})
        assert all("started with other settings than rank" in str(error) for error in answers)
        assert "seed" in str(answers[0])
        assert not list(tmp_path.iterdir())

    def test_a_folder_in_use(self, tmp_path: Path) -> None:
        serial(tmp_path / "run")
        answers = ranks.together(2, ranks.run, spread(tmp_path / "run"))
        assert all("holds a run already" in str(error) for error in answers)  # both know why, none waits

    def test_a_client_error_is_raised_by_all(self, tmp_path: Path) -> None:
        settings = {"optimizer": {"lr": 1e30, "clip_norm": None}, "participation": 1.0, "clients": 4}
        with pytest.raises(ClientError) as caught:
            simulate(small_config(threads=1, out=str(tmp_path / "serial"), **UNEVEN | settings))
        answers = ranks.together(2, ranks.run, spread(tmp_path / "run", **settings))
        expected = str(caught.value).replace("serial", "run")
        assert [str(error) for error in answers] == [expected, expected]

    def test_dropped_clients(self, tmp_path: Path) -> None:
        settings = {"optimizer": {"lr": 6.0, "clip_norm": None}, "on_client_error": "drop", "method": "feddyn"}
        expected = serial(tmp_path / "serial", **settings)
        assert any("failed" in row for row in expected["metrics"])
        assert ranks.together(2, ranks.run, spread(tmp_path / "run", **settings)) == ["finished"] * 2
        assert_same(contents(tmp_path / "run"), expected)

    def test_models_that_differ_are_noticed(self) -> None:
        model = torch.randn(1000)
        other = model.clone()
        other[:2] = model[:2].flip(0)
        assert _fingerprint(model) == _fingerprint(model.clone())
        assert _fingerprint(model) != _fingerprint(other)
        other = model.clone()
        other[7] += 1e-6
        assert _fingerprint(model.double()) != _fingerprint(other.double())


class TestLosses:
    def test_a_signal_to_one_rank_stops_all_and_loses_nothing(self, tmp_path: Path) -> None:
        out, settings = tmp_path / "run", {"method": "feddyn+asd", "rounds": 60, "checkpoint_every": 50}
        started = ranks.start(2, ranks.run, spread(out, **settings))
        wait_for_rounds(out, 3)
        os.kill(started[1][0].pid, signal.SIGTERM)
        answers = [ranks._answer(*one) for one in started]
        assert all(isinstance(error, Interrupted) for error in answers), answers
        assert "nothing lost; continue with" in str(answers[0])
        assert len(list((out / "checkpoint").iterdir())) == 1
        assert ranks.together(2, ranks.go_on, str(out)) == ["finished"] * 2
        assert_same(contents(out), serial(tmp_path / "serial", **settings))

    def test_a_checkpoint_is_there_when_all_parts_are_or_not_at_all(self, tmp_path: Path) -> None:
        out, settings = tmp_path / "run", {"method": "feddyn+asd"}
        config = spread(out, **settings)
        answers = ranks.together(2, ranks.die_before_a_checkpoint, config, of={1: (2,)})
        assert answers[1] == signal.SIGKILL
        assert "another rank of the run has ended" in str(answers[0])
        assert [path.name[:13] for path in (out / "checkpoint").iterdir()] == ["round-0000002"]
        for fault in ("checkpoint not renamed", "old checkpoints not deleted"):
            answers = ranks.together(2, processes.go_on, config, of={0: ((fault, 4),)})
            assert answers[0] == signal.SIGKILL
            assert "another rank of the run has ended" in str(answers[1])
        answers = ranks.together(2, processes.go_on, config, of={1: (("half a record", 2),)})
        assert answers[1] == signal.SIGKILL
        assert ranks.together(2, ranks.go_on, str(out)) == ["finished"] * 2
        assert_same(contents(out), serial(tmp_path / "serial", **settings))


def test_torchrun_restarts_a_run_whose_rank_was_killed(tmp_path: Path) -> None:
    """The real torchrun, from the command line."""
    out, settings = tmp_path / "run", {"method": "feddyn+asd", "rounds": 60, "checkpoint_every": 10}
    config = tmp_path / "config.yaml"
    config.write_text(spread(None, **settings).replace(executor="auto").to_yaml())  # torchrun, then
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=2"]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    command += ["-m", "fedasd_fast.cli", "run", str(config), "--out", str(out), "name=run"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    agent = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_for_rounds(out, 15)
        os.kill(int((out / "lock").read_text()), signal.SIGKILL)
        text, _ = agent.communicate(timeout=60)
    finally:
        agent.kill()
        agent.wait()
    assert agent.returncode == 0, text
    assert "another rank of the run has ended" in text
    assert text.count("60 of 60 rounds") == 1  # the other rank is silent
    assert_same(contents(out), serial(tmp_path / "serial", name="run", **settings))

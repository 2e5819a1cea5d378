"""Worker processes: the bits of `serial`, whoever trains whom, whoever dies; and nothing is left behind."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedasd_fast.callbacks import Callback
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import Config
from fedasd_fast.data.load import federate
from fedasd_fast.simulation import ClientError, Interrupted, SimulationError, resume, simulate
from fedasd_fast.simulation.cohort import ClientTask, local_steps
from fedasd_fast.simulation.context import build_context
from fedasd_fast.simulation.distributed.process_group import ProcessGroup
from fedasd_fast.simulation.distributed.sharding import Shard
from fedasd_fast.simulation.distributed.worker_pool import MAX_PIECES
from fedasd_fast.simulation.executors import create_executor
from fedasd_fast.simulation.executors.processes import ProcessesExecutor
from fedasd_fast.simulation.storage.client_store import ClientStore
from fedasd_fast.simulation.storage.run_directory import RunDirectory
from tests.simulation import subprocess_runs as processes
from tests.simulation.small_runs import assert_same, contents, small_config, without_times
from tests.simulation.tracked_clients import TrackedClients, Unborn, all_gone, pids

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at processes through /proc")
METHODS = ("fedavg+asd", "feddyn+asd", "fedspeed", "scaffold", "fedsmoo+asd", "fedexp", "moon")
UNEVEN = {"size_sigma": 0.7, "failures": {"stragglers": 0.3}, "local_epochs": 3, "eval_batch_size": 16}


def workers(number: int, **changes: Any) -> Config:
    return small_config(executor="processes", workers=number, **changes)


def same_results(one: Any, other: Any) -> bool:
    return without_times(one.metrics) == without_times(other.metrics) and all(
        torch.equal(one.models[name], other.models[name]) for name in other.models
    )


@pytest.mark.parametrize("method", METHODS)
def test_any_number_of_workers_gives_the_bits_of_serial(method: str, tmp_path: Path) -> None:
    """Models, metrics, server and client state; evaluation too is spread over the workers."""
    simulate(small_config(method=method, threads=1, executor="serial", out=str(tmp_path / "serial"), **UNEVEN))
    expected = contents(tmp_path / "serial")
    assert len(expected["records"]) > 8
    for number in (1, 2, 4):
        simulate(workers(number, method=method, out=str(tmp_path / str(number)), **UNEVEN))
        assert_same(contents(tmp_path / str(number)), expected)


def test_without_a_folder(tmp_path: Path) -> None:
    """Records are in shared memory then, and are read again in later rounds."""
    one = simulate(small_config(method="feddyn+asd", threads=1, **UNEVEN))
    assert same_results(simulate(workers(3, method="feddyn+asd", **UNEVEN)), one)


def test_no_record_is_kept_where_none_is_needed() -> None:
    changes = {"eval_models": ["sel", "cloud"], **UNEVEN}
    assert same_results(simulate(workers(2, **changes)), simulate(small_config(threads=1, **changes)))


def test_continued_by_another_executor(tmp_path: Path) -> None:
    settings = {"method": "feddyn+asd", "threads": 1, **UNEVEN}
    simulate(small_config(**settings, out=str(tmp_path / "serial")))
    simulate(workers(2, rounds=2, **settings, out=str(tmp_path / "run")))
    resume(tmp_path / "run", {"rounds": 4, "executor": "serial"})
    resume(tmp_path / "run", {"rounds": 7, "executor": "processes", "workers": 3})
    assert_same(contents(tmp_path / "run"), contents(tmp_path / "serial"))


def test_one_worker_a_core_with_one_thread_each() -> None:
    cores = len(os.sched_getaffinity(0))
    executor = create_executor(build_context(workers(0)), ProcessGroup())
    assert isinstance(executor, ProcessesExecutor)
    assert (executor.workers, executor.context.parallelism.threads) == (cores, 1)
    executor = create_executor(build_context(workers(0, threads=cores + 1)), ProcessGroup())
    assert isinstance(executor, ProcessesExecutor)
    assert (executor.workers, executor.context.parallelism.threads) == (1, cores + 1)


def test_the_longest_clients_are_first_and_the_queue_stays_short() -> None:
    context = build_context(workers(1, clients=5000, size_sigma=1.0))
    executor = ProcessesExecutor(context)
    tasks = [ClientTask(k, 1 + k % 3, 1 / 5000) for k in range(5000)]
    pieces = executor._pieces(tasks, {k: (-1, k) for k in range(5000)})
    trained = [task.client for piece in pieces for group in piece for task in group.tasks]
    steps = local_steps(context.experiment, [tasks[client] for client in trained]).tolist()
    assert steps == sorted(steps, reverse=True)
    assert sorted(trained) == list(range(5000))
    assert len(pieces) <= MAX_PIECES
    few = executor._pieces(tasks[:40], {k: (-1, k) for k in range(40)})
    assert len(few) > 30  # each alone, but for the shortest


class TestDeaths:
    @pytest.mark.parametrize("method", ["fedavg+asd", "feddyn+asd"])
    def test_killed_while_training(self, method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """Its sums are lost, with the clients that it had finished."""
        config = workers(2, method=method, out=str(tmp_path / "run"), **UNEVEN)
        data = TrackedClients(config, tmp_path / "notes", {3: 2, 7: 1, 8: 1})
        simulate(config, data=data)
        assert len(list((tmp_path / "notes").glob("* death *"))) == 4, "not killed: the test tests nothing"
        simulate(small_config(method=method, threads=1, out=str(tmp_path / "serial"), **UNEVEN))
        assert_same(contents(tmp_path / "run"), contents(tmp_path / "serial"))
        assert "was killed (SIGKILL); another takes its place" in caplog.text

    def test_the_only_worker_is_killed(self, tmp_path: Path) -> None:
        config = workers(1, rounds=3, **UNEVEN)
        data = TrackedClients(config, tmp_path, dict.fromkeys(range(0, 12, 4), 1))
        assert same_results(simulate(config, data=data), simulate(small_config(threads=1, rounds=3, **UNEVEN)))
        assert len(pids(tmp_path)) > 2

    def test_killed_at_random_moments(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("fedasd_fast.simulation.distributed.worker_pool._MOST_DEATHS", 1000)
        config = workers(2, method="feddyn+asd", rounds=20, participation=0.9, out=str(tmp_path / "run"), **UNEVEN)
        over, delays, killed = threading.Event(), random.Random(0), []

        def kill() -> None:
            while not over.wait(delays.uniform(0.02, 0.15)):
                if found := [p for p in multiprocessing.active_children() if p.name.startswith("fedasd worker")]:
                    killed.append(delays.choice(found))
                    killed[-1].kill()

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            simulate(config)
        finally:
            over.set()
            killer.join()
        assert len(killed) >= 3, "ended before it was killed: the test tests nothing"
        simulate(config.replace(executor="serial", threads=1, out=str(tmp_path / "serial")))
        assert_same(contents(tmp_path / "run"), contents(tmp_path / "serial"))

    def test_killed_between_two_rounds(self) -> None:
        class Kill(Callback):
            def on_round(self, metrics: dict[str, Any]) -> None:
                for process in multiprocessing.active_children():
                    process.kill()

        config = workers(2, rounds=3, **UNEVEN)
        assert same_results(simulate(config, callbacks=[Kill()]), simulate(small_config(threads=1, rounds=3, **UNEVEN)))

    def test_a_client_that_is_always_the_end_is_named(self, tmp_path: Path) -> None:
        config = workers(2, participation=1.0, rounds=1)
        data = TrackedClients(config, tmp_path, {5: 99})
        message = r"3 workers died while they trained client 5, the last one was killed \(SIGKILL\): out of memory\?"
        with pytest.raises(SimulationError, match=message):
            simulate(config, data=data)
        assert len(list(tmp_path.glob("client 5 death *"))) == 3
        assert all_gone(pids(tmp_path))

    def test_workers_that_never_get_ready(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("fedasd_fast.simulation.executors.processes.main", processes.die)
        with pytest.raises(
            SimulationError, match=r"3 workers died before they were ready.* enough memory for 2 of them"
        ):
            simulate(workers(2))


class TestErrors:
    def test_a_client_error_is_the_same_as_in_serial(self, tmp_path: Path) -> None:
        settings = {"optimizer": {"lr": 1e30, "clip_norm": None}, "participation": 1.0, "clients": 4}
        errors = {}
        for name in ("serial", "processes"):
            with pytest.raises(ClientError) as caught:
                simulate(small_config(executor=name, workers=1, threads=1, out=str(tmp_path), **settings))
            errors[name] = caught.value
            for path in sorted(tmp_path.rglob("*"), reverse=True):
                path.unlink() if path.is_file() else path.rmdir()
        serial, ours = errors["serial"], errors["processes"]
        assert str(ours) == str(serial)
        assert vars(ours) == vars(serial)
        assert f"fedasd replay {tmp_path} --round 1 --client {ours.client}" in str(ours)
        assert "in a worker:" in str(ours.__cause__)

    def test_dropped_clients(self, tmp_path: Path) -> None:
        """Their slots are given back, their old records stay."""
        settings = {
            "optimizer": {"lr": 6.0, "clip_norm": None},
            "on_client_error": "drop",
            "method": "feddyn",
            **UNEVEN,
        }
        simulate(small_config(threads=1, out=str(tmp_path / "serial"), **settings))
        simulate(workers(2, out=str(tmp_path / "run"), **settings))
        expected = contents(tmp_path / "serial")
        assert any("failed" in row for row in expected["metrics"])
        assert any(row["client_updates"] for row in expected["metrics"])
        assert_same(contents(tmp_path / "run"), expected)

    def test_a_model_that_cannot_be_pickled(self, tmp_path: Path) -> None:
        class Local(nn.Linear):
            pass

        with pytest.raises(
            ConfigError, match=r"by pickle, which cannot be done.*Local.*top of a module, or use executor"
        ):
            simulate(workers(2, out=str(tmp_path / "run")), model=Local(12, 5))
        assert not list(tmp_path.iterdir())  # before anything is written

    def test_an_error_while_a_worker_builds_its_place(self, tmp_path: Path) -> None:
        config = workers(2)
        with pytest.raises(OSError, match="the disk is gone"):
            simulate(config, data=Unborn(config, tmp_path))
        assert not multiprocessing.active_children()

    def test_in_a_daemonic_process(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
        with pytest.raises(ConfigError, match="daemonic"):
            simulate(workers(2))


class TestNothingIsLeft:
    def test_after_runs_and_errors(self, tmp_path: Path) -> None:
        class Broken(Callback):
            def on_round(self, metrics: dict[str, Any]) -> None:
                raise ZeroDivisionError

        def run() -> None:
            simulate(config, data=data)
            with pytest.raises(ZeroDivisionError):
                simulate(config, data=data, callbacks=[Broken()])

        config = workers(2, rounds=1)
        data = TrackedClients(config, tmp_path / "notes")
        run()
        before = descriptors(), set(os.listdir("/dev/shm"))
        run()
        assert all_gone(pids(tmp_path / "notes"), patience=0)
        assert not multiprocessing.active_children()
        assert descriptors() == before[0]
        assert not [name for name in set(os.listdir("/dev/shm")) - before[1] if "fedasd" in name]

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_after_a_signal(self, number: int, tmp_path: Path) -> None:
        class Stop(Callback):
            def on_round(self, metrics: dict[str, Any]) -> None:
                if metrics["round"] == 4:
                    timer.start()

        config = slow(tmp_path)
        timer = threading.Timer(0.02, os.kill, (os.getpid(), number))  # in the middle of the next round
        with pytest.raises(Interrupted, match=r"stopped after round 4, nothing lost; continue with `fedasd resume"):
            simulate(config, data=TrackedClients(config, tmp_path / "notes", delay=0.1), callbacks=[Stop()])
        assert all_gone(pids(tmp_path / "notes"), patience=0)
        assert finished_as_serial(config, tmp_path)

    def test_after_the_parent_was_killed(self, tmp_path: Path) -> None:
        """The next run waits for the last worker, which may be writing a record."""
        config = slow(tmp_path)
        process, pipe = processes.start(run_watched, config, tmp_path / "notes", 0.005)
        wait_for_rounds(tmp_path / "run", 3)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        pipe.close()
        assert len(pids(tmp_path / "notes")) == 2
        assert finished_as_serial(config, tmp_path)
        assert all_gone(pids(tmp_path / "notes"))

    def test_workers_do_not_finish_a_client_whose_run_was_killed(self, tmp_path: Path) -> None:
        process, pipe = processes.start(run_watched, workers(2), tmp_path, 30.0)
        until = time.monotonic() + 30
        while len(pids(tmp_path)) < 2:
            assert time.monotonic() < until
            time.sleep(0.01)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        pipe.close()
        assert all_gone(pids(tmp_path), patience=5)

    def test_a_folder_waits_for_workers_of_a_killed_run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        records = build_context(small_config(), shard=Shard(tmp_path / "clients")).records
        assert isinstance(records, ClientStore)
        store = records.for_workers()
        held = store.lock_directory()
        assert held is not None
        monkeypatch.setattr("fedasd_fast.simulation.storage.run_directory._LOCK_TIMEOUT", 0.05)
        with pytest.raises(SimulationError, match="is in use by process"), RunDirectory(tmp_path):
            pass
        monkeypatch.setattr("fedasd_fast.simulation.storage.run_directory._LOCK_TIMEOUT", 10)
        threading.Timer(0.1, os.close, (held,)).start()
        with RunDirectory(tmp_path):
            pass


def slow(tmp_path: Path) -> Config:
    return workers(2, method="feddyn+asd", rounds=12, checkpoint_every=3, out=str(tmp_path / "run"), **UNEVEN)


def run_watched(config: Config, notes: Path, delay: float) -> None:
    simulate(config, data=TrackedClients(config, notes, delay=delay))


def wait_for_rounds(out: Path, rounds: int) -> None:
    until = time.monotonic() + 30
    while not (out / "metrics.jsonl").exists() or (out / "metrics.jsonl").read_text().count("\n") < rounds:
        assert time.monotonic() < until
        time.sleep(0.005)


def finished_as_serial(config: Config, tmp_path: Path) -> bool:
    resume(tmp_path / "run", data=federate(config))
    simulate(config.replace(executor="serial", threads=1, out=str(tmp_path / "serial")))
    assert_same(contents(tmp_path / "run"), contents(tmp_path / "serial"))
    return True


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))

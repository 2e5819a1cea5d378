"""One client of one round again: the same losses, from any round of the run, and the folder untouched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedasd_fast.kernels import loader
from fedasd_fast.simulation import Replay, SimulationError, replay, simulate
from fedasd_fast.simulation.client.chain_trainer import ChainTrainer
from fedasd_fast.simulation.client.stacked_trainer import StackedRun
from fedasd_fast.simulation.client.trainer import LocalRun, Trainer
from fedasd_fast.simulation.errors import ClientError
from fedasd_fast.simulation.storage.client_store import ClientStore
from fedasd_fast.simulation.storage.run_directory import RunDirectory
from tests.simulation.small_runs import files, small_config

Traces = dict[tuple[int, int], list[float]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Traces]:
    """A finished run of 7 rounds, with checkpoints of 6 and 7, and the losses of each (round, client)."""
    out = tmp_path_factory.mktemp("replay") / "run"
    found: Traces = {}
    train = Trainer.train

    def spy(self: Trainer, server: Any, client: Any, *rest: Any) -> LocalRun:
        result = train(self, server, client, *rest)
        found[server.round + 1, client.id] = result.losses.tolist()
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "train", spy)
        simulate(small_config(method="feddyn+asd", failures={"stragglers": 0.5}, local_epochs=3, out=str(out)))
    return out, found


@pytest.mark.parametrize(
    ("round", "repeated"), [(7, 0), (1, 0), (3, 2), (6, 5)], ids=["checkpoint before", "first", "third", "sixth"]
)
def test_the_same_losses(round: int, repeated: int, run: tuple[Path, Traces]) -> None:
    out, traces = run
    before = files(out)
    stamps = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.name != "lock"}
    clients = [client for number, client in traces if number == round]
    for client in clients[:2]:
        assert replay(out, round, client) == Replay(traces[round, client], None, repeated)
    assert files(out) == before
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.name != "lock"} == stamps


@pytest.mark.skipif(not loader.available, reason="needs the compiled extension")
def test_a_client_that_the_whole_client_op_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose bits are not those of a client that is trained step by step."""
    found: Traces = {}
    train = ChainTrainer.train

    def spy(self: ChainTrainer, server: Any, tasks: Any, clients: Any) -> StackedRun:
        result = train(self, server, tasks, clients)
        found.update({(server.round + 1, one.id): result.client(k).losses.tolist() for k, one in enumerate(clients)})
        return result

    changes = {"failures": {"stragglers": 0.5}, "local_epochs": 3, "rounds": 4, "optimizer": {"lr": 3.0}}
    with monkeypatch.context() as patch:
        patch.setattr(ChainTrainer, "train", spy)
        simulate(small_config(method="feddyn+asd", executor="stacked", out=str(tmp_path), **changes))
    for (round, client), losses in found.items():
        assert replay(tmp_path, round, client).losses == losses


@pytest.mark.skipif(not loader.available, reason="needs the compiled extension")
def test_a_client_that_failed_in_the_whole_client_op(tmp_path: Path) -> None:
    optimizer = {"lr": 1e30, "clip_norm": None}
    with pytest.raises(ClientError) as failure:
        simulate(small_config(executor="stacked", out=str(tmp_path), optimizer=optimizer))
    found = replay(tmp_path, failure.value.round + 1, failure.value.client)
    assert found.error is not None
    assert str(failure.value).startswith(found.error)


def test_repeating_many_rounds_takes_no_more_memory_than_the_run(
    run: tuple[Path, Traces], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    take = ClientStore._take

    def spy(self: ClientStore) -> int:
        taken.append(take(self))
        return taken[-1]

    monkeypatch.setattr(ClientStore, "_take", spy)
    out, traces = run
    replay(out, 6, next(client for number, client in traces if number == 6))
    assert len(taken) > 18
    assert len(set(taken)) <= 12 + 8  # a record each, and those of a round


def test_a_client_that_took_no_part(run: tuple[Path, Traces]) -> None:
    out, traces = run
    there = sorted(client for number, client in traces if number == 7)
    absent = next(k for k in range(12) if k not in there)
    with pytest.raises(SimulationError) as caught:
        replay(out, 7, absent)
    assert str(caught.value) == f"client {absent} took no part in round 7; those that did: {there}"


@pytest.mark.parametrize("round", [0, -1, 8])
def test_a_round_that_is_not_there(round: int, run: tuple[Path, Traces]) -> None:
    with pytest.raises(SimulationError, match=rf"round = {round}; expected 1 .. 7"):
        replay(run[0], round, 0)


def test_not_the_folder_of_a_run(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(SimulationError, match="is not a run directory"):
            replay(folder, 1, 0)
    assert list(tmp_path.iterdir()) == []


def test_while_the_run_is_on(run: tuple[Path, Traces]) -> None:
    with RunDirectory(run[0]), pytest.raises(SimulationError, match="in use by process"):
        replay(run[0], 1, 0)

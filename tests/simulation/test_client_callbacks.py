"""on_client and on_evaluate: what they are told, where, and what becomes of their errors."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from fedasd_fast.callbacks import Callback, ClientResult
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.simulation import Result, simulate
from fedasd_fast.simulation.callback_notes import notes
from fedasd_fast.simulation.distributed.sharding import Shard
from fedasd_fast.simulation.executors.autotune import choose_executor
from fedasd_fast.simulation.inputs import Inputs
from fedasd_fast.simulation.simulate import _prepare
from tests.simulation import rank_processes
from tests.simulation.small_runs import bits, small_config, without_times


class Recorder(Callback):
    """Appends what it is told to a file, which all processes share; changes all that it is given."""

    def __init__(self, file: Path) -> None:
        self.file, self.run_name = file, "unknown"

    def on_start(self, run: Any) -> None:
        self.run_name = run.config.name

    def on_client(self, update: ClientResult) -> None:
        change = torch.linalg.vector_norm(update.end - update.server).item()
        told = [update.round, update.client, update.epochs, update.samples, update.weight, change]
        with self.file.open("a") as file:
            file.write(json.dumps([*told, update.losses.tolist(), os.getpid(), self.run_name]) + "\n")
        update.end.fill_(7.0)
        update.losses.fill_(7.0)


def told(file: Path) -> dict[tuple[int, int], list[Any]]:
    """By round and client, each once."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    found = {(row[0], row[1]): row[2:] for row in rows}
    assert len(found) == len(rows)
    return found


def watched(tmp_path: Path, **settings: Any) -> tuple[Result, dict[tuple[int, int], list[Any]]]:
    config = small_config(rounds=3, name="demo", **settings)
    result = simulate(config, callbacks=[Recorder(tmp_path / "told")])
    return result, told(tmp_path / "told")


WAYS: dict[str, dict[str, Any]] = {
    "serial": {},
    "stacked": {"executor": "stacked", "client_op": False},
    "op": {"executor": "stacked"},
    "processes": {"executor": "processes", "workers": 2},
}


@pytest.mark.parametrize("way", WAYS)
def test_every_client_of_every_round_is_told_once(way: str, tmp_path: Path) -> None:
    result, found = watched(tmp_path, **WAYS[way])
    for row in result.metrics:
        rows = [said for (round, _), said in found.items() if round == row["round"]]
        assert len(rows) == row["client_updates"]
        epochs, samples, weights, changes, losses = zip(*(said[:5] for said in rows), strict=True)
        assert set(epochs) == {1}
        assert sum(samples) == row["samples"]
        assert sum(weights) == pytest.approx(1)
        assert sum(changes) / len(changes) == pytest.approx(row["client_distance"], rel=1e-5)
        assert sum(map(len, losses)) == row["steps"]
        assert sum(map(sum, losses)) / row["steps"] == pytest.approx(row["loss"], rel=1e-6)
    here = {said[5] == os.getpid() for said in found.values()}
    assert here == {way != "processes"}
    assert {said[6] for said in found.values()} == {"demo"}  # workers have what on_start has set
    plain = simulate(small_config(rounds=3, name="demo", **WAYS[way]))  # what callbacks do to their copies is theirs
    assert without_times(result.metrics) == without_times(plain.metrics)
    assert bits(result.models) == bits(plain.models)


def simulate_watched(config: Any, file: Path) -> str:
    simulate(config, callbacks=[Recorder(file)])
    return "finished"


def test_ranks_tell_their_own_callbacks(tmp_path: Path) -> None:
    _, expected = watched(tmp_path)
    config = small_config(rounds=3, name="demo", executor="torchrun", threads=1)
    assert rank_processes.together(2, simulate_watched, config, tmp_path / "ranks") == ["finished"] * 2
    found = told(tmp_path / "ranks")
    assert {key: said[:3] for key, said in found.items()} == {key: said[:3] for key, said in expected.items()}
    assert len({said[5] for said in found.values()}) == 2
    assert {said[6] for said in found.values()} == {"demo"}


class Broken(Callback):
    def on_client(self, update: ClientResult) -> None:
        if update.round == 2:
            raise ZeroDivisionError("by hand")


@pytest.mark.parametrize("way", WAYS)
def test_an_error_ends_the_run_and_names_callback_client_and_round(way: str, tmp_path: Path) -> None:
    config = small_config(out=str(tmp_path), on_client_error="drop", **WAYS[way])
    with pytest.raises(ZeroDivisionError, match="by hand") as caught:
        simulate(config, callbacks=[Broken()])
    (note,) = notes(caught.value)
    assert note.startswith("raised by the callback Broken.on_client, client ")
    assert note.endswith(", round 2")


@pytest.mark.parametrize("method", ["on_start", "on_round", "on_evaluate", "on_end"])
def test_errors_of_the_other_methods_are_named_too(method: str) -> None:
    def fail(self: Callback, _: Any) -> None:
        raise KeyError("x")

    callback = type("Mine", (Callback,), {method: fail})()
    when = {"on_start": "before round 1", "on_end": "after round 2"}.get(method, "round 1")
    with pytest.raises(KeyError) as caught:
        simulate(small_config(rounds=2), callbacks=[callback])
    assert notes(caught.value) == [f"raised by the callback Mine.{method}, {when}"]


class Locked(Callback):
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.seen = 0

    def on_client(self, update: ClientResult) -> None:
        self.seen += 1


def test_a_callback_that_cannot_be_sent_to_workers(tmp_path: Path) -> None:
    config = small_config(executor="processes", workers=2, out=str(tmp_path / "run"))
    with pytest.raises(ConfigError, match=r"by pickle, .* with Locked: .*lock.*; .* use executor = serial or stacked"):
        simulate(config, callbacks=[Locked()])
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_auto_keeps_such_a_callback_in_this_process_and_does_not_call_it_in_its_trial() -> None:
    config, callback = small_config(executor="auto", workers=2, client_op=False), Locked()
    context, choice = _prepare(config, Inputs(), [callback], Shard())
    assert choice is not None
    assert callback.seen == 0
    assert context.experiment.config.executor != "processes"
    assert choose_executor(context)[0].executor != "processes"
    assert simulate(config, callbacks=[callback]).metrics[-1]["round"] == 7
    assert callback.seen > 0


def test_evaluations_give_the_run_so_far() -> None:
    seen = []

    class Own(Callback):
        def on_evaluate(self, result: Result) -> None:
            row = result.metrics[-1]
            with torch.no_grad():
                outputs = result.module("cloud")(torch.zeros(1, 12))
            seen.append((row["round"], row["acc_cloud"], len(result.metrics), bits(result.models["cloud"])))
            assert outputs.shape == (1, 5)
            for vector in result.models.values():
                vector.zero_()  # copies

        def on_round(self, metrics: Any) -> None:
            seen.append(metrics["round"])

    result = simulate(small_config(rounds=5, eval_every=2), callbacks=[Own()])
    plain = {n: simulate(small_config(rounds=n, eval_every=2)) for n in (2, 4, 5)}
    assert [entry if isinstance(entry, int) else entry[0] for entry in seen] == [1, 2, 2, 3, 4, 4, 5, 5]
    for entry in seen:
        if not isinstance(entry, int):
            round, accuracy, rows, vector = entry
            assert (accuracy, rows) == (plain[round].metrics[-1]["acc_cloud"], round)
            assert vector == bits(plain[round].models["cloud"])
    assert bits(result.models) == bits(plain[5].models)

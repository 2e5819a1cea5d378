"""TensorBoard, Weights & Biases and MLflow themselves, where they are installed, without a network: what a run and its
continuation wrote is read back."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedasd_fast.callbacks import Callback, MLflow, TensorBoard, WandB
from fedasd_fast.callbacks.metrics import numeric_metrics
from fedasd_fast.cli.main import main
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.simulation import resume, simulate
from fedasd_fast.simulation.storage.recorded_run import read_run
from tests.simulation.small_runs import small_config

Curves = dict[str, dict[int, float]]


class Kill(Callback):
    def on_round(self, metrics: Any) -> None:
        if metrics["round"] == 3:
            raise KeyboardInterrupt  # the last checkpoint is that of round 2


def killed_and_resumed(out: Path, make: Any, between: Any = lambda: None) -> Curves:
    """What a run has in metrics.jsonl that was watched, killed in round 3, and continued from round 2."""
    with pytest.raises(KeyboardInterrupt):
        simulate(small_config(rounds=4, out=str(out)), callbacks=[make(), Kill()])
    between()
    resume(out, callbacks=[make()])
    curves: Curves = {}
    for row in read_run(out).metrics:
        for key, value in numeric_metrics(row).items():
            curves.setdefault(key, {})[row["round"]] = value
    assert set(curves["acc_cloud"]) == {1, 2, 3, 4}
    return curves


def without_seconds(curves: Curves) -> Curves:
    """A round that was done again took another time; trackers may keep the first or the second."""
    return {key: curve for key, curve in curves.items() if not key.startswith("seconds")}


def test_tensorboard(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    expected = killed_and_resumed(tmp_path / "run", TensorBoard)
    events = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    found = {name: {e.step: e.value for e in events.Scalars(name)} for name in events.Tags()["scalars"]}
    assert found.keys() == expected.keys()
    for name, curve in expected.items():
        assert [event.step for event in events.Scalars(name)] == list(curve)  # each round once
        assert found[name] == pytest.approx(curve)  # float32


def test_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")

    def next_process() -> None:
        wandb.finish()  # as at the end of a process
        time.sleep(1.1)  # folders are named by the second

    expected = killed_and_resumed(tmp_path / "run", lambda: WandB(project="asd"), next_process)
    found: Curves = {}
    files = sorted((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))
    assert len(files) == 2
    assert len({file.name for file in files}) == 1  # the same id: the second continues the first
    for file in files:
        for row in wandb_rows(file):
            for key in expected.keys() & row.keys():
                found.setdefault(key, {})[row["_step"]] = row[key]
    assert without_seconds(found) == without_seconds(expected)


def wandb_rows(file: Path) -> list[dict[str, Any]]:
    from wandb.proto import wandb_internal_pb2

    rows = []
    for data in wandb_records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        items = record.history.item if record.WhichOneof("record_type") == "history" else ()
        if items:
            rows.append({item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items})
    return rows


def wandb_records(content: bytes) -> Iterator[bytes]:
    """Of a log as LevelDB writes it: blocks of 32 KB, whose parts have a checksum, a length and a kind each."""
    assert content[:4] == b":W&B"
    at, parts = 7, b""
    while at + 7 <= len(content):
        _, length, kind = struct.unpack_from("<IHB", content, at)
        if 32768 - at % 32768 < 7 or not kind:  # the rest of a block is padding
            at += 32768 - at % 32768
            continue
        parts = (b"" if kind in (1, 2) else parts) + content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield parts


class TestMLflow:
    @pytest.fixture
    def uri(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        pytest.importorskip("mlflow")
        monkeypatch.chdir(tmp_path)  # where it would put artifacts
        return f"sqlite:///{tmp_path / 'mlflow.db'}"

    def runs(self, uri: str, experiment: str) -> list[Any]:
        import mlflow

        self.client = mlflow.MlflowClient(uri)
        found = self.client.get_experiment_by_name(experiment)
        return list(self.client.search_runs([found.experiment_id])) if found else []

    def test_a_run_that_is_killed_and_resumed_is_one_run_there(self, uri: str, tmp_path: Path) -> None:
        expected = killed_and_resumed(tmp_path / "run", lambda: MLflow("asd", uri))
        (run,) = self.runs(uri, "asd")
        assert (run.info.run_name, run.info.status) == ("run", "FINISHED")
        assert (run.data.params["method"], run.data.params["asd.weight"]) == ("fedavg", "2.0")
        history = {key: self.client.get_metric_history(run.info.run_id, key) for key in expected}
        assert run.data.metrics.keys() == expected.keys()
        found = {key: {point.step: point.value for point in points} for key, points in history.items()}
        assert without_seconds(found) == without_seconds(expected)
        assert all(len(points) == 4 for points in history.values())  # round 3 once, though it was done twice

    def test_options_of_the_command(self, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "theirs")
        words = ["run", "quickstart", "rounds=1", "clients=4", "executor=serial", "--quiet", "--out"]
        assert main([*words, str(tmp_path / "a"), "--mlflow-experiment", "mine"]) == 0
        assert main([*words, str(tmp_path / "b"), "--mlflow"]) == 0
        assert main([*words, str(tmp_path / "c")]) == 0
        assert [run.info.run_name for name in ("mine", "theirs", "fedasd") for run in self.runs(uri, name)] == [
            "a",
            "b",
        ]

    def test_a_place_that_it_does_not_know_is_one_line(self, uri: str) -> None:
        with pytest.raises(ConfigError, match=r"MLflow cannot be used: .*nowhere.*sqlite:///mlflow.db") as caught:
            simulate(small_config(rounds=1), callbacks=[MLflow(tracking_uri="nowhere://x")])
        assert "\n" not in str(caught.value)

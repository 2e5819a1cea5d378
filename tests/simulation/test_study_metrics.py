"""Accuracy per class and over clients' labels, bytes, target accuracy, the best round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import from_saved
from fedasd_fast.data import from_clients
from fedasd_fast.data.load import federate
from fedasd_fast.report.run_list import list_run
from fedasd_fast.report.run_outputs import summary
from fedasd_fast.simulation import resume, simulate
from fedasd_fast.simulation.label_accuracy import sampled_clients
from fedasd_fast.simulation.storage.recorded_run import read_run

from .small_runs import small_config, without_times

BY_LABEL = {"class_accuracy": True, "client_accuracy": True}


@pytest.mark.parametrize("executor", ["serial", "stacked"])
def test_accuracies_by_label_are_those_of_predictions_by_hand(executor: str) -> None:
    config = small_config(rounds=2, executor=executor, **BY_LABEL)
    result, data = simulate(config), federate(config)
    row, plain = result.metrics[-1], simulate(small_config(rounds=2, executor=executor)).metrics[-1]
    for name in config.eval_models:
        with torch.no_grad():
            right = result.module(name)(data.test.inputs).argmax(1) == data.test.targets
        classes = [float(right[data.test.targets == c].double().mean()) * 100 for c in range(5)]
        assert row[f"class_acc_{name}"] == pytest.approx(classes)
        shares = [np.bincount(data.client(k).targets.numpy(), minlength=5) / len(data.client(k)) for k in range(12)]
        clients = sorted(float(share @ classes) for share in shares)
        assert row[f"client_acc_mean_{name}"] == pytest.approx(np.mean(clients))
        assert row[f"client_acc_worst_tenth_{name}"] == pytest.approx(np.mean(clients[:2]))
        assert row[f"client_acc_std_{name}"] == pytest.approx(np.std(clients))
    assert {key: row[key] for key in plain if not key.startswith("seconds")} == without_times([plain])[0]


def test_a_large_population_is_sampled_evenly() -> None:
    assert sampled_clients(3).tolist() == [0, 1, 2]
    many = sampled_clients(1_000_000)
    assert len(many) == 1000
    assert set(np.diff(many)) == {1000}


@pytest.mark.parametrize(("method", "up", "down"), [("fedavg", 1, 1), ("scaffold", 2, 2), ("feddyn", 1, 1)])
def test_bytes_are_vectors_times_participants(method: str, up: int, down: int) -> None:
    size = 4 * (12 * 16 + 16 + 16 * 5 + 5)
    for row in simulate(small_config(rounds=2, method=method)).metrics:
        assert row["bytes_up"] == up * size * row["client_updates"]
        assert row["bytes_down"] == down * size * row["client_updates"]


def test_a_run_stops_at_its_target_and_stays_stopped(tmp_path: Path) -> None:
    reached = [row["acc_cloud"] for row in simulate(small_config()).metrics]
    target = sorted(reached)[3] / 100
    first = next(n for n, accuracy in enumerate(reached, 1) if accuracy >= 100 * target)
    config = small_config(out=str(tmp_path / "run"), target_accuracy=target, stop_at_target=True)
    result = simulate(config)
    assert [row["reached_target"] for row in result.metrics] == [False] * (first - 1) + [True]
    assert without_times(resume(tmp_path / "run").metrics) == without_times(result.metrics)
    run = read_run(tmp_path / "run")
    assert run.finished
    assert list_run(tmp_path / "run").state == "finished"
    assert f"%: in round {first}, with " in summary(run, None)
    longer = resume(tmp_path / "run", {"stop_at_target": False}).metrics
    assert [row["acc_cloud"] for row in longer] == reached


def test_the_best_models_are_kept_through_an_interruption(tmp_path: Path) -> None:
    whole = simulate(small_config(out=str(tmp_path / "whole"), keep_best=True, **BY_LABEL))
    accuracies = [row["acc_cloud"] for row in whole.metrics]
    best = 1 + accuracies.index(max(accuracies))
    expected = simulate(small_config(rounds=best)).module("cloud").state_dict()
    parts = small_config(out=str(tmp_path / "parts"), keep_best=True, rounds=3, **BY_LABEL)
    simulate(parts)
    resumed = resume(tmp_path / "parts", {"rounds": 7})
    last = resumed.metrics[-1]
    over = f"{last['client_acc_mean_cloud']:.2f} % on average over their labels, "
    worst = f"worst tenth {last['client_acc_worst_tenth_cloud']:.2f} %"
    assert f"  clients   cloud {over}{worst}" in summary(read_run(tmp_path / "parts"), None)
    assert without_times(resumed.metrics) == without_times(whole.metrics)
    for name in ("whole", "parts"):
        kept = torch.load(tmp_path / name / "best.pt", weights_only=True)["cloud"]
        assert kept.keys() == expected.keys()
        assert all(torch.equal(kept[key], expected[key]) for key in kept)
    if best != 7:
        assert f"% in round {best}" in summary(read_run(tmp_path / "whole"), None)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"target_accuracy": 60.0}, "a fraction in"),
        ({"stop_at_target": True}, "without a target"),
        ({"keep_best": True}, "set out"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        simulate(small_config(**settings))


def test_a_saved_configuration_without_these_settings_means_none_of_them() -> None:
    saved = {key: value for key, value in small_config().to_dict().items() if key not in (*BY_LABEL, "keep_best")}
    assert from_saved(saved) == small_config()


@pytest.mark.parametrize("setting", [{"target_accuracy": 0.5}, {"class_accuracy": True}, {"client_accuracy": True}])
def test_accuracies_need_test_samples(setting):
    data = from_clients([(torch.randn(8, 4), torch.arange(8) % 2) for _ in range(3)])
    with pytest.raises(ConfigError, match=f"{next(iter(setting))} = .* needs test samples, but the data have none"):
        simulate({"model": "logistic", "rounds": 1, "participation": 1.0, "executor": "serial", **setting}, data=data)

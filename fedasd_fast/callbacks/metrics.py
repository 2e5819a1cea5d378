"""A row of metrics, as in metrics.jsonl; docs/guide/analyse.md and docs/settings.md say what the numbers mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict


class Metrics(TypedDict, total=False):
    """What a round gave.  Accuracies in percent, only in rounds that were evaluated, of the models in eval_models."""

    round: int
    lr: float
    client_updates: int
    steps: int
    samples: int
    bytes_down: int
    bytes_up: int
    failed: dict[str, str]  # errors of the clients that were dropped, by client
    loss_scale: float  # precision = float16
    steps_skipped: int
    loss: float
    client_distance: float
    drift: float
    simulated_seconds: float  # devices
    simulated_clock: float
    cut_by_deadline: int
    seconds: float
    seconds_eval: float
    acc_all: float
    acc_sel: float
    acc_cloud: float
    test_loss_all: float
    test_loss_sel: float
    test_loss_cloud: float
    reached_target: bool  # target_accuracy
    class_acc_all: list[float | None]  # class_accuracy
    class_acc_sel: list[float | None]
    class_acc_cloud: list[float | None]
    client_acc_mean_all: float  # client_accuracy
    client_acc_mean_sel: float
    client_acc_mean_cloud: float
    client_acc_worst_tenth_all: float
    client_acc_worst_tenth_sel: float
    client_acc_worst_tenth_cloud: float
    client_acc_std_all: float
    client_acc_std_sel: float
    client_acc_std_cloud: float


def numeric_metrics(metrics: Mapping[str, object]) -> dict[str, float]:
    """Every number but the round itself."""
    return {
        key: float(value)
        for key, value in metrics.items()
        if key != "round" and isinstance(value, (int, float)) and not isinstance(value, bool)
    }

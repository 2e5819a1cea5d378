"""The loss as measured beside what benchmarks.roofline predicts for this GPU."""

from __future__ import annotations

from typing import Any

from ..roofline import GPUS, Gpu, LossCall, predicted

PREDICTED = {"loss_and_grad_cached": True, "loss_and_grad": False}  # implementation: with a teacher cache
USUAL_CLOCK = 1.7e9  # Hz, where the driver does not tell
TOLERANCE = 0.25  # a measurement this far outside the predicted range is called faster or slower


def gpu_of(measured: dict[str, Any]) -> Gpu:
    """By the datasheet where the model knows it, else by what the driver says."""
    for gpu in GPUS:
        if all(word in measured["name"] for word in gpu.name.split()[:2]):
            return gpu
    return Gpu(
        measured["name"],
        measured["bandwidth"],
        measured["l2_bytes"],
        measured["multiprocessors"],
        measured.get("clock") or USUAL_CLOCK,
    )


def call_of(shape: str, cached: bool) -> LossCall:
    *clients, batch, classes = map(int, shape.split("x"))
    return LossCall(clients[0] if clients else 1, batch, classes, cached=cached)


def beside_predictions(loss: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each shape and each implementation that the model describes."""
    gpu = gpu_of(loss["gpu"])
    rows = []
    for row in loss["rows"]:
        if row["implementation"] not in PREDICTED:
            continue
        least, most, bound = predicted(call_of(row["shape"], PREDICTED[row["implementation"]]), gpu)
        rows.append({
            "shape": row["shape"], "implementation": row["implementation"], "measured": row["median"],
            "predicted": [least, most], "bound": bound, "bandwidth": row["bandwidth"],
            "verdict": verdict(row["median"], least, most),
        })  # fmt: skip
    return rows


def verdict(measured: float, least: float, most: float) -> str:
    if measured < (1 - TOLERANCE) * least:
        return "faster"
    return "slower" if measured > (1 + TOLERANCE) * most else "as predicted"

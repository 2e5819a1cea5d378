from __future__ import annotations

from benchmarks import methods

TINY = {
    "synthetic": {"shape": [4], "samples_per_client": 4}, "model": "mlp", "model_args": {"hidden": [4]}, "clients": 200,
}  # fmt: skip


def test_methods_take_turns() -> None:
    seconds = methods.measure(["fedavg", "feddyn+asd"], 2, TINY)
    assert list(seconds) == ["fedavg", "feddyn+asd"]
    assert all(len(values) == 2 and min(values) > 0 for values in seconds.values())

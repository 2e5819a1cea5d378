import pytest

from benchmarks.rounds import Clock, profile
from fedasd_fast import presets


def test_a_profile_names_every_part(monkeypatch: pytest.MonkeyPatch):
    small = ["rounds=2", "clients=5", "participation=1.0", "eval_every=2", "local_epochs=1"]
    for method, term in (("fedavg", "loss (cross-entropy)"), ("feddyn+asd", "loss (fused)")):
        seconds, rows = profile(presets.load("quickstart", [*small, f"method={method}"]))
        wanted = {term, "forward", "backward", "update", "aggregation", "client state", "evaluation", "data: normalise"}
        assert {label for label in wanted if seconds[label] <= 0} == set()
        measured = sum(row["seconds"] + row.get("seconds_eval", 0) for row in rows)
        assert 0.5 * measured < seconds.total() < 1.5 * measured


def test_nested_time_counts_once(monkeypatch: pytest.MonkeyPatch):
    now = iter(range(100))
    monkeypatch.setattr("benchmarks.rounds.time.perf_counter", lambda: next(now))
    clock = Clock()
    with clock("outer"), clock("inner"):
        pass
    assert clock.seconds == {"outer": 2, "inner": 1}

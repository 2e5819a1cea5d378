from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedasd_fast import Config
from fedasd_fast.analysis.cost import cost, cost_of, mean_epochs
from fedasd_fast.analysis.loaded_run import load_run
from fedasd_fast.analysis.plots.cost import cost_figure
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.simulation import simulate
from fedasd_fast.simulation.errors import SimulationError

from ..simulation.small_runs import small_config


def rows(number: int, every: int = 1) -> list[dict[str, Any]]:
    """Accuracy is the round's number."""
    return [
        {"round": t, "client_updates": 10, "seconds": 0.5, "seconds_eval": 9.0}
        | ({"acc_all": float(t), "acc_sel": t + 0.5} if t % every == 0 else {})
        for t in range(1, number + 1)
    ]


@pytest.mark.parametrize(
    ("method", "teacher", "units", "cached", "with_backward"),
    [  # of a round of five epochs
        ("fedavg", "recompute", 5, 5, 15),
        ("fedavg+asd", "cache", 6, 6, 16),
        ("fedavg+asd", "cache_approximate", 6, 6, 16),
        ("fedavg+asd", "recompute", 10, 6, 20),
        ("fedntd", "cache", 6, 6, 16),
        ("fedntd+asd", "recompute", 10, 6, 20),
        ("scaffold", "cache", 5, 5, 15),
        ("fedsam", "cache", 10, 10, 30),
        ("fedsam+asd", "cache", 11, 11, 31),
        ("fedspeed+asd", "recompute", 15, 11, 35),
    ],
)
def test_units_of_a_round(method: str, teacher: str, units: int, cached: int, with_backward: int) -> None:
    found = cost_of(Config(method=method, teacher=teacher, local_epochs=5), rows(4, every=2))  # type: ignore[arg-type]
    assert found.rounds == [2, 4]
    assert found.units == [2 * units, 4 * units]
    assert found.units_cached == [2 * cached, 4 * cached]
    assert found.units_with_backward == [2 * with_backward, 4 * with_backward]
    assert found.seconds == [1.0, 2.0]  # of training only
    assert found.accuracy == {"all": [2.0, 4.0], "sel": [2.5, 4.5]}
    assert (found.teacher == "none") == (method in ("fedavg", "fedsam", "scaffold"))


def test_the_papers_2500_units() -> None:
    """500 rounds of FedAvg; with ASD 416, if the teacher is cached, and half as many if not."""
    plain = cost_of(Config(local_epochs=5), rows(500))
    asd = cost_of(Config(method="fedavg+asd", local_epochs=5, teacher="recompute"), rows(500))
    assert plain.units[-1] == 2500
    assert plain.accuracy_within(2500, "all") == 500
    assert asd.accuracy_within(2500, "all", by="units_cached") == 416
    assert asd.accuracy_within(2500, "all") == 250
    assert asd.accuracy_within(10, "sel", by="seconds") == 20.5
    assert asd.accuracy_within(9, "all") is None
    with pytest.raises(ValueError, match="model = 'cloud'; this run evaluated all, sel"):
        plain.accuracy_within(1, "cloud")
    with pytest.raises(ValueError, match="by = 'rounds'; expected units"):
        plain.accuracy_within(1, "all", by="rounds")


def test_epochs_are_those_that_were_trained(tmp_path: Path) -> None:
    """Clients of 16 samples each: the rows say how many passes there were."""
    failures = {"stragglers": 0.5, "dropout": 0.3}
    simulate(small_config(out=str(tmp_path / "run"), method="fedavg+asd", local_epochs=6, failures=failures, rounds=6))
    run = load_run(tmp_path / "run")
    passes = [row["samples"] / 16 / max(1, row["client_updates"]) for row in run.metrics]
    assert [mean_epochs(run.context.experiment.config, row) for row in run.metrics] == pytest.approx(passes)
    assert 0 < min(passes) < max(passes)
    total = sum(p + 1 for p in passes)
    assert cost(run).units[-1] == pytest.approx(total)


def test_a_round_in_which_nobody_returned_costs_nothing() -> None:
    made = rows(3)
    made[1]["client_updates"] = 0
    assert cost_of(Config(method="fedavg+asd", local_epochs=5), made).units == [6, 6, 12]


def test_bad_input() -> None:
    with pytest.raises(SimulationError, match=r"none of 2 rounds was evaluated; .*eval_every = 3"):
        cost_of(Config(eval_every=3), rows(2, every=3))
    made = rows(2)
    made[1]["acc_all"] = float("nan")
    found = cost_of(Config(), made)
    assert found.accuracy["all"] == [1.0, None]
    with pytest.raises(ConfigError, match="FedAvg did not evaluate the model cloud; choose one of all, sel"):
        cost_figure({"FedAvg": found}, model="cloud")
    with pytest.raises(ConfigError, match="no run to plot"):
        cost_figure({})


def test_figure_from_results_and_from_json(tmp_path: Path) -> None:
    plain = cost_of(Config(local_epochs=5), rows(4))
    asd = cost_of(Config(method="fedavg+asd", local_epochs=5, teacher="recompute"), rows(4))
    saved = json.loads(json.dumps(asd.to_dict(), allow_nan=False))
    figure = cost_figure({"FedAvg": plain, "FedAvg+ASD": saved})
    figure.savefig(tmp_path / "figure.png", dpi=50)
    left, right = figure.axes
    assert [list(line.get_xdata()) for line in left.lines] == [
        [5, 10, 15, 20], [10, 20, 30, 40], [6, 12, 18, 24], [20, 20],  # two runs, as if cached, what both have spent
    ]  # fmt: skip
    assert len(right.lines) == 2
    assert (
        figure.texts[1].get_text()
        == "evaluated: average of all clients' latest models (never sampled: the initial one)"
    )
    del saved["accuracy"]["all"]
    assert list(cost_figure({"FedAvg+ASD": saved}).axes[1].lines[0].get_ydata()) == [1.5, 2.5, 3.5, 4.5]
    assert "40 over a participant's samples, 10 per round (6 with a cached teacher)" in str(asd)
    assert "cached" not in str(plain)
    assert left.get_legend().get_texts()[1].get_text() == "FedAvg+ASD, 10 per round"

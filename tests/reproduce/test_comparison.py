"""Runs that never ran, beside the paper's numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedasd_fast.report.setting_plot import Point, numeric_axis, over_figure
from fedasd_fast.reproduce import Plan, Results, grid, results, verdict
from fedasd_fast.reproduce.grid import Grid
from fedasd_fast.reproduce.verdict import noise
from fedasd_fast.simulation.storage.recorded_run import Run


def ran(whole: Grid, accuracies: dict[str, dict[int, float]], rounds: int | None = None, **more: Any) -> Results:
    """`accuracies` by cell and seed, of the model that the paper reports."""
    runs = {}
    for cell in whole.cells:
        for seed, value in accuracies.get(cell.name, {}).items():
            last = rounds or cell.config.rounds
            rows = [
                {"round": 10, "acc_all": 1.0, "acc_sel": 2.0},
                {"round": last, "acc_all": value, "acc_sel": value - 3},
            ]
            runs[cell.name, seed] = Run(cell.label, cell.config.replace(seed=seed), rows, more.get("out"))
    return results(whole, Plan(more.get("seeds", (1, 2)), more.get("planned")), runs, "fedasd reproduce x")


def by_label(found: Results) -> dict[str, Any]:
    return {number.label: number for number in found.numbers}


def test_the_rule() -> None:
    assert verdict(1.4, 0.66, 0.22) == "above the paper (noise ±1.39)"
    assert verdict(-1.38, 0.66, 0.22) == "within noise (±1.39)"
    assert verdict(-1.5, None, 0.5) == "below the paper (noise ±1.41)"  # 0.5 each
    assert verdict(0.5, 0.01, 0.0) == "within noise (±0.57)"  # 0.2 each
    assert verdict(1.0, 1.5, 2.0) == "within noise (±5.00)"
    assert verdict(-16.9, None, 8.0) == "unstable (±22.63)"
    assert verdict(-23.0, None, 8.0) == "below the paper (noise ±22.63)"


def test_noise() -> None:
    assert noise([1.0, 2.0, 3.0], []) == 1.0
    assert noise([1.0], [[3.0, 1.0]]) == 0.5  # too few evaluations
    rising = [100.0, 0.0, *(10.0 + 2 * i for i in range(10))]  # only the last ten count
    assert noise([1.0], [rising]) == pytest.approx(0, abs=1e-9)
    wobbling = [value + (-1) ** i for i, value in enumerate(rising)]
    assert 0.9 < noise([1.0], [wobbling]) < 1.2
    assert noise([1.0, 1.0], [wobbling, rising]) == pytest.approx(noise([1.0], [wobbling]) / 2)
    assert noise([1.0, 9.0], [wobbling, rising]) == pytest.approx(5.657, abs=1e-3)


def test_numbers_gains_and_verdicts() -> None:
    whole = grid("table2_cifar100", only=["fedavg,fedavg+asd", "dirichlet_0.3"])
    base, asd = (cell.name for cell in whole.cells)
    found = ran(whole, {base: {1: 38.0, 2: 39.0}, asd: {1: 45.0, 2: 47.0}})
    one, two = found.numbers
    assert (one.mean, one.paper, one.paper_std, one.round) == (38.5, 38.67, 0.66, 500)
    assert one.std == pytest.approx(0.7071, abs=1e-4)
    assert one.verdict == "within noise (±1.93)"
    assert one.also == {"sel": 35.5}
    assert two.verdict.startswith("above the paper")
    (gain,) = found.gains
    assert (gain.mean, gain.seeds) == (7.5, (1, 2))  # 7 and 8
    assert gain.paper == pytest.approx(42.77 - 38.67)
    assert gain.verdict.startswith("above the paper")
    assert "38.50 ± 0.71" in found.text()
    assert "| FedAvg partition=dirichlet_0.3 | 38.50 ± 0.71 | 38.67 ± 0.66 | -0.17 |" in found.markdown()
    assert json.loads(found.json())["numbers"][0]["values"] == [38.0, 39.0]


def test_table_4_is_judged_by_the_round_s_participants() -> None:
    whole = grid("table4_500clients", only=["fedavg"])
    (number,) = ran(whole, {"fedavg": {1: 31.0}}).numbers
    assert (number.model, number.mean, number.also) == ("sel", 28.0, {"all": 31.0})
    assert number.verdict == "within noise (±1.41)"


def test_other_rounds_and_settings_are_not_comparable() -> None:
    whole = grid("table4_500clients", only=["fedavg,fedavg+asd"])
    (number, _) = (found := ran(whole, {"fedavg": {1: 28.0}}, rounds=400)).numbers
    assert (number.verdict, number.why) == ("unfinished", "round 400, the paper's is 1000")
    assert (number.seeds, number.rounds, number.planned_rounds) == ((1,), (400,), 1000)
    assert by_label(found)["FedAvg+ASD"].verdict == "not run yet"
    assert found.gains == ()
    (short, _) = ran(whole, {"fedavg": {1: 28.0}}, rounds=400, planned=400).numbers
    assert short.verdict == "not comparable"
    other = grid("table4_500clients", ["augment=round", "teacher=cache"], ["fedavg,fedavg+asd"])
    found = ran(other, {"fedavg": {1: 28.0}, "fedavg+asd": {1: 30.0}})
    assert {number.verdict for number in found.numbers} == {"not comparable"}
    assert "Here, all: other augment, teacher." in found.text()
    assert [gain.verdict for gain in found.gains] == ["not comparable"]


def test_a_gain_is_taken_where_both_have_been() -> None:
    whole = grid("table4_500clients", only=["fedavg,fedavg+asd"])
    long, short = ran(whole, {"fedavg": {1: 30.0}}), ran(whole, {"fedavg+asd": {1: 9.0}}, rounds=20)
    assert long.gains == short.gains == ()
    cells = {cell.name: cell for cell in whole.cells}
    rows = [{"round": 10, "acc_sel": 5.0}, {"round": 1000, "acc_sel": 30.0}]
    runs = {("fedavg", 1): Run("", cells["fedavg"].config.replace(seed=1), rows)}
    runs["fedavg+asd", 1] = Run("", cells["fedavg+asd"].config.replace(seed=1), [{"round": 10, "acc_sel": 4.0}])
    (gain,) = results(whole, Plan((1,), None), runs, "").gains
    assert (gain.round, gain.mean, gain.verdict) == (10, -1.0, "not comparable")


def test_suspect_cells_are_marked() -> None:
    whole = grid("table2_tinyimagenet", only=["fedspeed+asd", "dirichlet_0.6"])
    found = ran(whole, {whole.cells[0].name: {1: 30.0}})
    assert found.numbers[0].verdict.endswith("*")
    assert "30.05 ± 0.24 *" in found.text()
    assert "suspect in the paper: the same digits as feddyn+asd" in found.text()


def test_adaptive_weights_gain_over_uniform_ones() -> None:
    whole = grid("table3_uniform_vs_adaptive", only=["fedavg+asd"])
    found = ran(whole, {whole.cells[0].name: {1: 41.0}, whole.cells[1].name: {1: 43.0}})
    assert [(gain.mean, round(gain.paper or 0, 2)) for gain in found.gains] == [(2.0, 1.02)]


def test_flatness_comes_from_the_analysis(tmp_path: Path) -> None:
    whole = grid("table1_hessian", only=["fedavg"])
    assert "run `fedasd analyse RUN`" in ran(whole, {"fedavg": {1: 38.0}}).text()
    (tmp_path / "analysis").mkdir()
    analysed = {"round": 500, "spectrum": {"top": [51.25, 30.0], "trace": 8000.0}}
    (tmp_path / "analysis" / "hessian.json").write_text(json.dumps(analysed))
    found = ran(whole, {"fedavg": {1: 38.0}}, out=tmp_path)
    assert found.numbers[0].hessian == {"top_eigenvalue": 51.25, "trace": 8000.0}
    assert found.flatness_table().rows == [["FedAvg", "51.25", "53.6", "8,000", "8,516"]]
    assert ran(whole, {"fedavg": {1: 38.0}}, out=tmp_path, rounds=510).numbers[0].hessian == {}  # of another model


def test_accuracy_against_a_setting() -> None:
    axes = {"method": ["fedavg", "fedavg+asd"], "clients": [100, 200], "asd.enabled": [True, False]}
    assert numeric_axis(axes) == "clients"
    assert numeric_axis({"clients": [100]}) is None
    points = [
        Point({"method": method, "clients": clients}, [30.0, 31.0][: clients // 100], 29.0)
        for method in ("fedavg", "fedavg+asd")
        for clients in (100, 200)
    ]
    figure = over_figure([*points, Point({"method": "feddyn", "clients": 100}, [])], "clients", model="all", title="t")
    (drawn,) = figure.axes
    assert [text.get_text() for text in drawn.get_legend().get_texts()] == ["FedAvg", "FedAvg+ASD", "FedDyn"]
    assert drawn.get_xlabel() == "number of clients"
    assert "hollow marks: the paper" in figure.texts[-1].get_text()

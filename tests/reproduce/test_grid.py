from __future__ import annotations

import itertools
from typing import Any

import pytest

from fedasd_fast import presets
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import Config
from fedasd_fast.reproduce.grid import Grid, grid_names, load_grid
from fedasd_fast.reproduce.run_timing import timing_key
from fedasd_fast.reproduce.time_budget import GridPlan, fit_to_budget
from fedasd_fast.simulation.storage.recorded_run import RecordedRun
from fedasd_fast.simulation.time_estimate import RunTiming


def test_every_preset_with_a_grid_can_be_reproduced() -> None:
    assert set(grid_names()) == set(presets.names())
    for name in grid_names():
        whole = load_grid(name)
        spans = presets.describe(name)["grid"]
        folders = {cell.name for cell in whole.cells}
        assert len(folders) == len(whole.cells) == len(list(itertools.product(*spans.values())))


def test_cells_that_are_compared_run_together_and_seeds_come_last() -> None:
    runs = load_grid("table2_cifar100").runs([7, 8])
    assert [seed for _, seed in runs] == [7] * 42 + [8] * 42
    first = [cell.name for cell, _ in runs[:4]]
    assert first == [
        f"{method},partition=dirichlet_0.3" for method in ("fedavg", "fedavg+asd", "fedprox", "fedprox+asd")
    ]
    assert all(cell.config.partition == "iid" for cell, _ in runs[28:42])
    weights = [cell.name for cell in load_grid("table3_uniform_vs_adaptive").cells[:2]]
    assert weights == ["fedavg+asd,asd.weighting=uniform", "fedavg+asd,asd.weighting=adaptive"]


def test_a_part_keeps_the_names_of_the_whole() -> None:
    whole = {cell.name for cell in load_grid("table2_cifar100").cells}
    part = load_grid("table2_cifar100", only=["fedavg,fedavg+asd", "partition=iid,dirichlet_0.6"])
    assert len(part.cells) == 4
    assert {cell.name for cell in part.cells} < whole
    assert [cell.config.partition for cell in load_grid("table2_cifar100", only=["fedavg,iid"]).cells] == ["iid"]
    assert [
        cell.name for cell in load_grid("table11_participation", only=["fedavg", "0.05", "dirichlet_0.3"]).cells
    ] == ["fedavg,partition=dirichlet_0.3,participation=0.05"]


def test_a_setting_takes_the_place_of_an_axis_and_rules_hold() -> None:
    cells = load_grid("table9_clients_d03", ["clients=20", "optimizer.lr=0.5"]).cells
    assert {(cell.config.clients, cell.config.optimizer.lr) for cell in cells} == {(20, 0.5)}
    assert cells[0].name == "fedavg,clients=20"
    hyper = load_grid("fig7_hyper", ["asd.entropy_power=2"], ["asd.weight=20", "asd.temperature=3"]).cells
    assert [(c.config.asd.weight, c.config.asd.temperature, c.config.asd.entropy_power) for c in hyper] == [(20, 3, 2)]
    (sam,) = load_grid("table2_tinyimagenet", only=["fedsam", "iid"]).cells
    assert sam.config.method_args == {"rho": 0.03}


@pytest.mark.parametrize(
    ("only", "message"),
    [
        ("fedagv", "nothing in this grid has 'fedagv'; did you mean fedavg"),
        ("partitoin=iid", "'partitoin' is not an axis of this grid; did you mean partition"),
        ("partition=dirichlet_0.9", "did you mean dirichlet_0.6"),
        ("fedavg,", "nothing in this grid has ''"),
        ("[", "nothing in this grid has '\\['"),
    ],
)
def test_only_must_match(only: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_grid("table2_cifar100", only=[only])


def two_run_grid() -> Grid:
    """Two runs of 1000 rounds a seed."""
    return load_grid("table4_500clients", only=["fedavg,fedavg+asd"])


def planned(budget: float | None, seeds: tuple[int, ...] = (1, 2, 3), named: bool = False, done: int = 0) -> GridPlan:
    whole = two_run_grid()
    known = {
        timing_key(cell.config): RunTiming(start=0, round=0.9, evaluation=1) for cell in whole.cells
    }  # 1 s with evaluation
    rows = [{"round": done}]
    begun = {(cell.name, 1): RecordedRun(cell.label, cell.config, rows) for cell in whole.cells} if done else {}
    return fit_to_budget(whole, GridPlan(seeds, None), known, begun, budget, named)


@pytest.mark.parametrize("change", [{"precision": "bfloat16"}, {"client_op": False}, {"clients_at_once": 3}], ids=str)
def test_what_takes_another_time_is_measured_anew(change: dict[str, Any]) -> None:
    config = two_run_grid().cells[0].config
    assert timing_key(config.replace(seed=5)) == timing_key(config) != timing_key(config.replace(**change))


def test_fewer_seeds_come_before_fewer_rounds() -> None:
    assert planned(None).seconds == pytest.approx(1.1 * 6000)
    assert (planned(7000).seeds, planned(7000).rounds) == ((1, 2, 3), None)
    assert (planned(5000).seeds, planned(5000).rounds) == ((1, 2), None)
    short = planned(1000)
    assert short.seeds == (1,)
    assert short.rounds == 450  # of 454 that fit: those after the last evaluation would not be seen
    assert short.seconds is not None
    assert short.seconds <= 1000
    assert "450 of 1000 rounds, with 1 seed" in str(short.choice)
    assert "not comparable" in str(short.choice)


def test_named_seeds_are_kept_and_what_is_done_is_free() -> None:
    kept = planned(1000, named=True)
    assert (kept.seeds, kept.rounds) == ((1, 2, 3), 150)
    assert planned(1000, done=600).rounds is None
    assert planned(1000, (1,), done=400).rounds == 850
    with pytest.raises(ConfigError, match="one round of the 2 runs takes about 4 s, more than the budget of 1 s"):
        planned(1)


def test_a_timing_counts_evaluations() -> None:
    config = Config(eval_every=10)
    assert RunTiming(5, 1, 2).seconds(config, 25) == 5 + 25 + 3 * 2  # after rounds 10, 20 and 25
    assert RunTiming(5, 1, 2).seconds(config, 25, done=12) == 5 + 13 + 2 * 2
    assert RunTiming(5, 1, 2).seconds(config, 25, done=25) == 0

from __future__ import annotations

import itertools

import pytest

from fedasd_fast import presets
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import Config
from fedasd_fast.reproduce.grid import Grid, grid, names
from fedasd_fast.reproduce.time_budget import Pace, Plan, choose, duration, kind, seconds
from fedasd_fast.simulation.storage.recorded_run import Run


def test_everything_that_spans_something_can_be_reproduced() -> None:
    assert set(names()) == set(presets.names())
    for name in names():
        whole = grid(name)
        spans = presets.describe(name)["grid"]
        folders = {cell.name for cell in whole.cells}
        assert len(folders) == len(whole.cells) == len(list(itertools.product(*spans.values())))


def test_what_is_compared_stands_together_and_seeds_come_last() -> None:
    runs = grid("table2_cifar100").runs([7, 8])
    assert [seed for _, seed in runs] == [7] * 42 + [8] * 42
    first = [cell.name for cell, _ in runs[:4]]
    assert first == [
        f"{method},partition=dirichlet_0.3" for method in ("fedavg", "fedavg+asd", "fedprox", "fedprox+asd")
    ]
    assert all(cell.config.partition == "iid" for cell, _ in runs[28:42])
    weights = [cell.name for cell in grid("table3_uniform_vs_adaptive").cells[:2]]
    assert weights == ["fedavg+asd,asd.weighting=uniform", "fedavg+asd,asd.weighting=adaptive"]


def test_a_part_keeps_the_names_of_the_whole() -> None:
    whole = {cell.name for cell in grid("table2_cifar100").cells}
    part = grid("table2_cifar100", only=["fedavg,fedavg+asd", "partition=iid,dirichlet_0.6"])
    assert len(part.cells) == 4
    assert {cell.name for cell in part.cells} < whole
    assert [cell.config.partition for cell in grid("table2_cifar100", only=["fedavg,iid"]).cells] == ["iid"]
    assert [cell.name for cell in grid("table11_participation", only=["fedavg", "0.05", "dirichlet_0.3"]).cells] == [
        "fedavg,partition=dirichlet_0.3,participation=0.05"
    ]


def test_a_setting_takes_the_place_of_an_axis_and_rules_hold() -> None:
    cells = grid("table9_clients_d03", ["clients=20", "optimizer.lr=0.5"]).cells
    assert {(cell.config.clients, cell.config.optimizer.lr) for cell in cells} == {(20, 0.5)}
    assert cells[0].name == "fedavg,clients=20"
    hyper = grid("fig7_hyper", ["asd.entropy_power=2"], ["asd.weight=20", "asd.temperature=3"]).cells
    assert [(c.config.asd.weight, c.config.asd.temperature, c.config.asd.entropy_power) for c in hyper] == [(20, 3, 2)]
    (sam,) = grid("table2_tinyimagenet", only=["fedsam", "iid"]).cells
    assert sam.config.method_args == {"rho": 0.03}


@pytest.mark.parametrize(
    ("only", "message"),
    [
        ("fedagv", "nothing in this grid has 'fedagv'; did you mean fedavg"),
        ("partitoin=iid", "'partitoin' is no axis of this grid; did you mean partition"),
        ("partition=dirichlet_0.9", "did you mean dirichlet_0.6"),
        ("fedavg,", "nothing in this grid has ''"),
        ("[", "nothing in this grid has '\\['"),
    ],
)
def test_only_must_match(only: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        grid("table2_cifar100", only=[only])


@pytest.mark.parametrize(
    ("text", "value"), [("2h", 7200), ("90m", 5400), ("1h30m", 5400), ("45s", 45), ("1.5d", 129600)]
)
def test_times(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["2", "h", "2 hours", "-2h", "0h", "2h3", ""])
def test_bad_times(text: str) -> None:
    with pytest.raises(ConfigError, match="expected a time with its unit"):
        seconds(text)


def test_times_are_told() -> None:
    assert [duration(value) for value in (5, 600, 9000, 400000)] == ["5 s", "10 min", "2.5 h", "4.6 days"]


def part() -> Grid:
    """Two runs of 1000 rounds a seed."""
    return grid("table4_500clients", only=["fedavg,fedavg+asd"])


def chosen(budget: float | None, seeds: tuple[int, ...] = (1, 2, 3), named: bool = False, done: int = 0) -> Plan:
    whole = part()
    known = {kind(cell.config): Pace(start=0, round=0.9, evaluation=1) for cell in whole.cells}  # 1 s with evaluation
    rows = [{"round": done}]
    begun = {(cell.name, 1): Run(cell.label, cell.config, rows) for cell in whole.cells} if done else {}
    return choose(whole, Plan(seeds, None), known, begun, budget, named)


def test_fewer_seeds_come_before_fewer_rounds() -> None:
    assert chosen(None).seconds == pytest.approx(1.1 * 6000)
    assert (chosen(7000).seeds, chosen(7000).rounds) == ((1, 2, 3), None)
    assert (chosen(5000).seeds, chosen(5000).rounds) == ((1, 2), None)
    short = chosen(1000)
    assert short.seeds == (1,)
    assert short.rounds == 450  # of 454 that fit: those after the last evaluation would not be seen
    assert short.seconds is not None
    assert short.seconds <= 1000
    assert "450 of 1000 rounds, with 1 seed" in str(short.choice)
    assert "not comparable" in str(short.choice)


def test_named_seeds_are_kept_and_what_is_done_is_free() -> None:
    kept = chosen(1000, named=True)
    assert (kept.seeds, kept.rounds) == ((1, 2, 3), 150)
    assert chosen(1000, done=600).rounds is None
    assert chosen(1000, (1,), done=400).rounds == 850
    with pytest.raises(ConfigError, match="one round of the 2 runs takes about 4 s, more than the budget of 1 s"):
        chosen(1)


def test_a_pace_counts_evaluations() -> None:
    config = Config(eval_every=10)
    assert Pace(5, 1, 2).of(config, 25) == 5 + 25 + 3 * 2  # after rounds 10, 20 and 25
    assert Pace(5, 1, 2).of(config, 25, done=12) == 5 + 13 + 2 * 2
    assert Pace(5, 1, 2).of(config, 25, done=25) == 0

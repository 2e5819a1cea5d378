from __future__ import annotations

from dataclasses import replace

from fedasd_fast.report.milestones import Best, best_evaluation, milestones_section, rounds_to, target_accuracy
from fedasd_fast.report.run_group import RunGroup

from .synthetic_runs import synthetic_run


def test_the_best_round_is_the_first_of_the_highest() -> None:
    run = synthetic_run(accuracies={2: 40.0, 5: 61.0, 8: 61.0, 10: 55.0})
    assert best_evaluation(run, "cloud") == Best(5, 61.0)
    assert best_evaluation(run, "sel") == Best(5, 60.0)
    assert best_evaluation(synthetic_run(), "cloud") is None


def test_rounds_to_a_target() -> None:
    run = synthetic_run(accuracies={2: 40.0, 5: 61.0, 8: 50.0})
    assert rounds_to(run, "cloud", 40.0) == 2
    assert rounds_to(run, "cloud", 40.5) == 5
    assert rounds_to(run, "cloud", 61.5) is None


def test_the_target_is_stated_and_seeds_stand_side_by_side() -> None:
    slow = [synthetic_run("FedAvg", {5: 40.0, 10: 50.0}, seed=s) for s in (0, 1)]
    fast = synthetic_run("FedAvg+ASD", {2: 59.0, 5: 54.01, 10: 60.004})
    experiment = RunGroup("", [*slow, fast])
    assert target_accuracy(experiment) == 54.0  # 90 % of 60.004, to the decimals that are shown
    text = milestones_section(experiment)
    assert "The target, 54.00 %, is 90% of the best final accuracy (cloud) among these runs" in text
    assert "<td>50.00 ± 0.00</td><td>10, 10</td><td>not yet, not yet</td><td>not yet, not yet</td>" in text
    assert "<td>60.00</td><td>10</td><td>2</td>" in text
    assert "simulated" not in text


def test_without_an_evaluation_there_is_no_such_section() -> None:
    assert milestones_section(RunGroup("", [synthetic_run()])) == ""


def test_a_target_that_is_set_with_bytes_and_simulated_time() -> None:
    found = synthetic_run(accuracies={2: 40.0, 5: 61.0, 8: 50.0}, target_accuracy=0.6)
    rows = [
        {**row, "bytes_up": 1000, "bytes_down": 2000, "simulated_clock": 90.0 * row["round"]} for row in found.metrics
    ]
    run = replace(found, metrics=rows)
    text = milestones_section(RunGroup("", [run]))
    assert "The target, 60.00 %, is the setting target_accuracy (cloud)." in text
    assert '<th scope="col">simulated time to 60.00 %</th>' in text
    assert "<td>61.00</td><td>5</td><td>5</td><td>5.0 KB up, 10.0 KB down</td><td>8 min</td>" in text
    assert "(cloud) among these runs" in milestones_section(RunGroup("", [run, synthetic_run("B", {2: 40.0})]))

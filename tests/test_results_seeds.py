"""What docs/results.md says of FedAvg's two seeds is what the two runs say."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
from pathlib import Path
from statistics import fmean, stdev

import pytest

from fedasd_fast import presets
from fedasd_fast.cli.main import main

from .results_runs import (
    CACHE,
    DOCS,
    FEDAVG,
    FEDAVG_ASD,
    FEDAVG_ASD_SEED_1,
    FEDAVG_SEED_1,
    FEDDYN,
    RESULTS,
    UNIFORM,
    accuracies,
    curve,
    plain,
    rounds_of,
    row,
    signed,
)

SEEDS = (FEDAVG, FEDAVG_SEED_1)


def page() -> str:
    return (DOCS / "results.md").read_text()


def prose() -> str:
    return " ".join(page().split())


def paper(method: str) -> float:
    number = presets.expected("table4_500clients", [f"method={method}"])
    assert number
    return number.mean


def noise_of_fedavg(grid: str) -> float:
    """The scatter of a run's last evaluations, which is the noise of a single seed."""
    numbers = json.loads((RESULTS / grid / "report.json").read_text())["numbers"]
    return float(next(number["noise"] for number in numbers if number["label"] == "FedAvg"))


def lead(run: Path, over: Path, model: str) -> list[float]:
    """At each evaluation: rounds 20, 40, .."""
    return [a - b for a, b in zip(curve(run, model), curve(over, model), strict=True)]


def test_table_of_the_seeds() -> None:
    first, second = map(accuracies, SEEDS)
    asd = accuracies(FEDAVG_ASD)
    rows = [
        row("seed 0", *plain(first)),
        row("seed 1", *plain(second)),
        row("mean of both", *plain(map(fmean, zip(first, second, strict=True)))),
        row("seed 1 over seed 0", *signed(second, first)),
        row("FedAvg+ASD, seed 0, over seed 0", *signed(asd, first)),
        row("FedAvg+ASD, seed 0, over seed 1", *signed(asd, second)),
        row("FedAvg+ASD, seed 1", *plain(accuracies(FEDAVG_ASD_SEED_1))),
        row("FedAvg+ASD, seed 1, over seed 1", *signed(accuracies(FEDAVG_ASD_SEED_1), second)),
    ]
    assert "\n".join(rows) in page()


def test_the_verdict_on_both_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for run in SEEDS:
        shutil.copytree(run, tmp_path / "both" / run.name, ignore=shutil.ignore_patterns("analysis"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDASD_DATA", str(tmp_path))  # the page does without the dataset
    command = json.loads((RESULTS / "table4/report.json").read_text())["command"]
    settings = shlex.split(command.partition(" --seeds ")[0])[1:]
    assert main([*settings, "--seeds", "0,1", "--only", "fedavg", "--out", "both", "--report"]) == 0
    lines = re.findall(r"^\| FedAvg .*\|$", (tmp_path / "both/report.md").read_text(), re.MULTILINE)
    assert len(lines) == 1
    assert lines[0] in page().splitlines()


def test_sentences_about_the_noise() -> None:
    said = prose()
    sel, last_ten, everyone = (stdev(values) for values in zip(*map(accuracies, SEEDS), strict=True))
    scatter = [noise_of_fedavg(grid) for grid in ("table4", "table4-seed1")]
    behind = [-change for change in lead(FEDAVG_SEED_1, FEDAVG, "all")]
    apart = [a - b for a, b in zip(*map(accuracies, SEEDS), strict=True)]
    for sentence in (
        f"a standard deviation of {sel:.2f} points on `sel`, {last_ten:.2f} on its last ten evaluations and "
        f"{everyone:.2f} on `all`",
        f"its last ten evaluations scatter by {scatter[0]:.2f} (seed 0) and {scatter[1]:.2f} (seed 1)",
        f"seed 1 is behind in {sum(b > 0 for b in behind)} of {len(behind)} evaluations, by {fmean(behind):.2f} points "
        f"on average and by at most {max(behind):.2f} (round {20 * (behind.index(max(behind)) + 1)})",
        f"by the standard deviation of the two seeds alone the limit would be ±{2 * math.hypot(sel, sel):.2f}",
        f"two seeds of FedAvg are {apart[0]:.1f} (`sel`) and {apart[2]:.1f} points (`all`) apart",
        f"two seeds of FedAvg differ by {apart[0]:.2f} points on `sel` and {apart[2]:.2f} on `all`",
    ):
        assert sentence in said
    assert paper("fedavg") - fmean(accuracies(run)[0] for run in SEEDS) > 2 * math.hypot(sel, sel)  # "below the paper"
    adaptive, uniform = accuracies(FEDAVG_ASD), accuracies(UNIFORM)
    assert f"the weights by {adaptive[0] - uniform[0]:.2f} and {adaptive[2] - uniform[2]:.2f}." in said


def test_the_gain_is_larger_than_the_noise() -> None:
    assert (
        "**The gain of ASD** is ten times what lies between the seeds on `sel`, and two and a half times on `all`"
        in prose()
    )
    first, second, asd = map(accuracies, (*SEEDS, FEDAVG_ASD))
    ratios = [(with_asd - a) / (a - b) for with_asd, a, b in zip(asd, first, second, strict=True)]
    assert 10 < min(ratios[:2]) < max(ratios[:2]) < 11.5
    assert 2.5 < ratios[2] < 2.7


def test_sentences_beside_the_paper() -> None:
    said = prose()
    feddyn = paper("feddyn") - accuracies(FEDDYN)[0]
    first, second = (paper("fedavg") - accuracies(run)[0] for run in SEEDS)
    assert f"FedDyn by {feddyn:.1f} points, FedAvg by {first:.1f}, with seed 1 by {second:.1f}" in said
    above = [accuracies(run)[2] - paper("fedavg") for run in SEEDS]
    assert f"ours would be {above[0]:.1f} (FedAvg; with seed 1 {above[1]:.1f})" in said


def test_sentences_about_the_rounds() -> None:
    said = prose()
    leads = lead(FEDAVG_ASD, FEDAVG_SEED_1, "all")
    behind = [20 * (k + 1) for k, change in enumerate(leads) if change < 0]
    assert behind == list(range(behind[0], behind[-1] + 1, 20))
    assert (
        f"behind on `all` from round {behind[0]} to {behind[-1]}, by up to {-min(leads):.1f} points, and ahead from "
        f"round {behind[-1] + 20} on" in said
    )
    step, distance = (fmean(r[key] for r in rounds_of(FEDAVG_SEED_1)[-100:]) for key in ("drift", "client_distance"))
    assert f"FedAvg with seed 1 has {step:.3f} and {distance:.3f}" in said


def test_equal_computation_is_judged_alike_by_both_seeds() -> None:
    second = accuracies(FEDAVG_SEED_1)
    assert f"(seed 1: {second[0]:.2f} and {second[2]:.2f})" in prose()
    cached = [rounds_of(CACHE)[819][f"acc_{model}"] for model in ("sel", "all")]
    for run in SEEDS:
        sel, _, everyone = accuracies(run)
        assert cached[0] > sel
        assert cached[1] < everyone

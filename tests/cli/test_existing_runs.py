"""compare, list and export on runs that exist."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedasd_fast.report.run_list import differing_settings, list_run
from fedasd_fast.simulation.storage.run_directory import RunDirectory

from .conftest import SMALL_SETTINGS, Fedasd


@pytest.fixture
def two_runs(fedasd: Fedasd) -> tuple[Path, Path]:
    folders = Path("runs/a"), Path("runs/deep/b")
    for folder, method in zip(folders, ("fedavg", "fedprox"), strict=True):
        words = (*SMALL_SETTINGS, "executor=serial", f"method={method}", f"seed={len(method)}")
        assert fedasd("run", "quickstart", *words, "--out", str(folder), "--quiet")[0] == 0
    return folders


def rows(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_runs_that_exist_are_compared_and_nothing_is_run(fedasd: Fedasd, two_runs: tuple[Path, Path]) -> None:
    before = {path: path.read_bytes() for folder in two_runs for path in folder.rglob("*") if path.is_file()}
    code, out, err = fedasd("compare", *map(str, two_runs), "--out", "both")
    assert (code, err) == (0, "")
    for folder, label in zip(two_runs, ("FedAvg", "FedProx"), strict=True):
        line = next(line for line in out.splitlines() if line.startswith(f"{label} "))
        assert f"{rows(folder)[-1]['acc_sel']:.2f}" in line
    assert "FedProx" in Path("both/compare.txt").read_text()
    assert "FedProx" in Path("both/report.html").read_text()
    assert Path("both/compare.png").stat().st_size > 0
    assert before == {path: path.read_bytes() for path in before}


def test_runs_of_other_data_get_a_table_of_their_own(fedasd: Fedasd, two_runs: tuple[Path, Path]) -> None:
    fedasd("run", "quickstart", *SMALL_SETTINGS, "partition=iid", "--out", "runs/c", "--quiet", "executor=serial")
    code, out, _ = fedasd("compare", "runs/a", "runs/c")
    assert code == 0
    assert "quickstart, synthetic, iid" in out
    assert Path("runs/compare/compare-2.png").is_file()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("runs/a", "quickstart"), "runs/a is a directory, quickstart is a preset"),
        (("quickstart", "runs/a"), "runs/a is a directory, quickstart is a preset"),
        (("runs/a", "rounds=3"), "rounds=3 is a setting"),
        (("runs/a", "runs/none"), "runs/none is no directory"),
        (("runs/a", "--seeds", "0"), "--seeds with run directories"),
        (("runs/empty",), "no run in this folder"),
    ],
)
def test_a_mixture_is_refused(fedasd: Fedasd, words: tuple[str, ...], expected: str) -> None:
    for name in ("a", "empty"):
        Path("runs", name).mkdir(parents=True)
    code, out, err = fedasd("compare", *words)
    assert (code, out) == (2, "")
    assert expected in err


def test_list_shows_state_round_accuracy_and_what_differs(fedasd: Fedasd, two_runs: tuple[Path, Path]) -> None:
    fedasd("run", "quickstart", *SMALL_SETTINGS, "--out", "runs/c", "--quiet", "executor=serial")
    stopped = Path("runs/c/metrics.jsonl")
    stopped.write_text(stopped.read_text().splitlines()[0] + "\n{bad}\n" + "\n")  # as if round 2 was not reached
    with RunDirectory(Path("runs/deep/b")):
        code, out, err = fedasd("list")
    lines = {line.split()[0]: line.split() for line in out.splitlines()}
    assert code == 0
    header = lines["run"]
    assert header[:3] == ["run", "state", "round"]
    assert header[-2:] == ["method", "seed"]
    accuracy = f"{rows(two_runs[0])[-1]['acc_cloud']:.2f}"
    assert lines["a"][:6] == ["a", "finished", "2", "of", "2", accuracy]
    assert lines["a"][-2:] == ["fedavg", "6"]
    assert lines["deep/b"][1] == "running"
    assert lines["c"][1:5] == ["interrupted", "1", "of", "2"]
    assert err == ""  # a last line that is cut short is no news


def test_list_without_runs_says_so(fedasd: Fedasd) -> None:
    assert "there is no folder runs" in fedasd("list")[2]
    Path("empty").mkdir()
    assert "no run in empty" in fedasd("list", "empty")[2]
    Path("empty/config.yaml").write_text("- 1\n")
    code, _, err = fedasd("list", "empty")
    assert code == 0
    assert "holds no settings" in err


def test_settings_of_older_versions_differ_from_nothing() -> None:
    old = {"seed": 0, "method_args": {}, "optimizer": {"lr": 0.1}}
    new = {"seed": 0, "method_args": {"mu": 0.1}, "optimizer": {"lr": 0.1}, "client_op": True}
    assert differing_settings([old, new]) == ["method_args.mu"]


def test_listing_needs_no_torch() -> None:
    code = "import fedasd_fast.cli.list, fedasd_fast.cli.export, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_metrics_as_csv(fedasd: Fedasd, two_runs: tuple[Path, Path]) -> None:
    folder = two_runs[0]
    code, printed, _ = fedasd("export", str(folder), "--csv")
    assert code == 0
    fedasd("export", str(folder), "--csv", "all.csv")
    assert Path("all.csv").read_text() == printed
    found = list(csv.DictReader(io.StringIO(printed)))
    expected = rows(folder)
    assert len(found) == len(expected) == 2
    for row, numbers in zip(found, expected, strict=True):
        assert {key: json.loads(value) for key, value in row.items() if value} == numbers  # every digit
    assert list_run(folder).round == 2
    assert "runs is not a run directory" in fedasd("export", "runs", "--csv")[2]
    assert "--csv" in fedasd("export", str(folder))[2]

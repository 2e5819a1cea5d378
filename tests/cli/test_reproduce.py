"""A grid from the first run to the report, stopped and continued."""

from __future__ import annotations

import csv
import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from fedasd_fast.analysis.loaded_run import load_run
from fedasd_fast.callbacks import Progress
from fedasd_fast.cli import execution
from fedasd_fast.simulation.storage.recorded_run import read_run

from .conftest import Fedasd

SMALL_SETTINGS = ("dataset=synthetic", "synthetic.test_samples=50", "model=mlp", "model_args.hidden=[8]",
                  "augment=none", "clients=6", "participation=0.5", "local_epochs=1", "batch_size=5", "eval_every=1",
                  "executor=serial", "threads=1")  # fmt: skip
TABLE_4_PART = (
    "reproduce",
    "table4_500clients",
    *SMALL_SETTINGS,
    "--only",
    "fedavg,fedavg+asd",
    "--rounds",
    "2",
    "--seeds",
    "5,6",
)
FOLDERS = ["fedavg+asd-seed5", "fedavg+asd-seed6", "fedavg-seed5", "fedavg-seed6"]


def folders(out: str) -> list[str]:
    return sorted(path.parent.name for path in Path(out).glob("*/config.yaml"))


def interrupt_after(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGINT after this many rounds of the grid."""
    rounds: list[Any] = []

    def on_round(self: Progress, metrics: Any) -> None:
        rounds.append(metrics)
        if len(rounds) == number:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Progress, "on_round", on_round)


def test_a_grid_that_is_stopped_goes_on(fedasd: Fedasd, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        interrupt_after(3, patch)
        code, out, err = fedasd(*TABLE_4_PART)
    command = (
        f"fedasd reproduce table4_500clients {' '.join(SMALL_SETTINGS)} --rounds 2 --seeds 5,6 --only fedavg,fedavg+asd"
    )
    assert code == 130
    assert f"the same command continues: {command}" in err.replace("'", "")
    assert folders("runs/table4_500clients") == ["fedavg+asd-seed5", "fedavg-seed5"]  # side by side, one seed first
    assert "not comparable" in out
    out_folder = Path("runs/table4_500clients")
    before = {path: path.stat().st_mtime_ns for path in out_folder.glob("fedavg-seed5/*")}
    report = json.loads((out_folder / "report.json").read_text())
    assert [number["rounds"] for number in report["numbers"]] == [[2], [1]]

    code, out, _ = fedasd(*TABLE_4_PART, "--quiet")
    assert code == 0
    assert out.count("finished already") == 1
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert folders("runs/table4_500clients") == FOLDERS
    assert all(read_run(out_folder / name).rounds == 2 for name in FOLDERS)

    report = json.loads((out_folder / "report.json").read_text())
    ours = [read_run(out_folder / f"fedavg-seed{seed}").accuracy("sel") for seed in (5, 6)]
    assert report["numbers"][0]["values"] == ours
    assert report["numbers"][0]["paper"] == 27.92
    assert {number["verdict"] for number in report["numbers"]} == {"not comparable"}
    assert "dataset" in report["numbers"][0]["differs"]
    for text in (out, (out_folder / "report.txt").read_text()):
        assert "Within noise: the difference is at most" in text
        assert "round 2, in the paper 1000" in text
    assert (out_folder / "report.md").read_text().startswith("# table4_500clients\n\nTable 4")
    assert (out_folder / "accuracy.png").stat().st_size > 0
    page = (out_folder / "report.html").read_text()
    for text in ("27.92", "not comparable", "Within noise", "Run with fedasd_fast", "FedAvg+ASD", command):
        assert text in page.replace("&#x27;", "")

    code, again, _ = fedasd(*TABLE_4_PART, "--report")
    assert code == 0
    assert again.strip() in out
    assert fedasd(*TABLE_4_PART, "--report", "--out", "elsewhere")[0] == 2
    code, _, err = fedasd(*TABLE_4_PART, "optimizer.lr=0.5", "--report")
    assert code == 2
    assert "other settings (optimizer.lr = 0.1, not 0.5)" in err

    whole = read_run(out_folder / "fedavg+asd-seed5").metrics  # as if it had not been stopped
    assert fedasd(*TABLE_4_PART, "--seeds", "5", "--out", "again", "--quiet")[0] == 0
    assert [row["loss"] for row in read_run("again/fedavg+asd-seed5").metrics] == [row["loss"] for row in whole]


def test_runs_share_the_partition_and_the_initial_model_and_may_get_longer(fedasd: Fedasd) -> None:
    words = ("reproduce", "table9_clients_d03", *SMALL_SETTINGS, "--seeds", "5", "--out", "g", "--quiet")
    assert fedasd(*words, "--rounds", "1", "--only", "fedavg,fedavg+asd,feddyn")[0] == 0
    first, *others = [load_run(f"g/{method},clients=6-seed5") for method in ("fedavg", "fedavg+asd", "feddyn")]
    for other in others:
        assert torch.equal(first.context.initial, other.context.initial)
        for client in range(6):
            one, two = (run.context.experiment.data.client(client) for run in (first, other))
            assert torch.equal(one.inputs, two.inputs)

    row = read_run("g/fedavg,clients=6-seed5").metrics[0]
    code, out, _ = fedasd(*words, "--rounds", "3", "--only", "fedavg,fedavg+asd")
    longer = read_run("g/fedavg,clients=6-seed5")
    assert (code, longer.rounds, longer.metrics[0]) == (0, 3, row)
    code, out, _ = fedasd(*words, "--rounds", "2", "--only", "fedavg,fedavg+asd,feddyn")
    assert out.count("finished already, with 3 rounds") == 2
    report = json.loads(Path("g/report.json").read_text())
    assert {number["round"] for number in report["numbers"]} == {2}  # all at the round that was asked for
    assert report["numbers"][0]["mean"] == longer.metrics[1]["acc_all"]


def test_a_budget_is_kept_to(fedasd: Fedasd, monkeypatch: pytest.MonkeyPatch) -> None:
    words = (*TABLE_4_PART[:-4], "rounds=100000", "--budget", "3s", "--quiet", "--out", "b")
    monkeypatch.setattr("fedasd_fast.reproduce.time_budget._SAFETY_FACTOR", 20)  # so that the test takes less
    code, out, _ = fedasd(*words)
    assert code == 0
    assert "--budget 3s: " in out
    assert "of 100000 rounds, with 1 seed, fit into the budget" in out
    assert folders("b") == ["fedavg+asd-seed2024", "fedavg-seed2024"]
    rounds = {read_run(Path("b") / name).rounds for name in folders("b")}
    assert len(rounds) == 1
    assert 0 < max(rounds) < 100000
    code, again, _ = fedasd(*words)
    assert again.count("finished already") == 2  # not planned anew
    assert "of 100000 rounds" in Path("b/report.md").read_text()
    code, out, _ = fedasd(*words[:-5], "rounds=2", "--budget", "1h", "--dry-run", "--out", "b", "--quiet")
    assert code == 0
    assert f"{Path('b') / 'fedavg-seed2024'}  2 rounds ({max(rounds)} done)" in out
    assert "the whole grid fits into the budget" in out


def test_the_plan_runs_nothing(fedasd: Fedasd, tmp_path: Path) -> None:
    code, out, _ = fedasd(*TABLE_4_PART, "--dry-run")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "runs/table4_500clients/fedavg-seed5  2 rounds"
    assert lines[1] == "runs/table4_500clients/fedavg+asd-seed5  2 rounds"
    assert lines[-1].startswith("4 runs, about ")
    code, out, _ = fedasd("reproduce", "table6_resnet20", "--dry-run")
    assert code == 0
    assert out.count("300 rounds") == 18
    assert "18 runs, time unknown: " in out  # the data is not there
    assert "fedasd data get cifar100" in out
    assert list(tmp_path.iterdir()) == []


def test_names(fedasd: Fedasd) -> None:
    code, out, _ = fedasd("reproduce")
    assert code == 0
    assert len(out.splitlines()) > 20
    assert "fig7_hyper" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("table44", "there is no preset 'table44'; did you mean"),
        ("fig4_6", "did you mean fig4_6_curves_cifar100 or fig4_6_curves_tinyimagenet?"),
        ("quickstart --budget 2", "--budget 2; expected a time with its unit"),
        ("quickstart --only feddyn", "--only feddyn: nothing in this grid has 'feddyn'"),
        ("quickstart --seeds a", "--seeds a; expected whole numbers"),
        ("quickstart --rounds many", "invalid int value"),
        ("quickstart --rounds -3", "rounds = -3"),
        ("quickstart seed=3", "seed=3: a grid has several runs; use --seeds"),
        ("quickstart roundz=3", "unknown setting roundz; did you mean rounds"),
        ("table4_500clients --budget 2h", "fedasd data get cifar100"),
    ],
)
def test_a_mistake_is_explained(words: str, message: str, fedasd: Fedasd, tmp_path: Path) -> None:
    code, _, err = fedasd("reproduce", *words.split())
    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_over_what_the_preset_spans(fedasd: Fedasd) -> None:
    words = ("sweep", "fig7_hyper", *SMALL_SETTINGS, "rounds=1", "asd.entropy_power=2", "--out", "s", "--quiet")
    assert fedasd(*words)[0] == 0
    rows = list(csv.DictReader(Path("s/results.csv").read_text().splitlines()))
    assert len({(row["asd.weight"], row["asd.temperature"]) for row in rows}) == len(rows) == 16
    kept = read_run(sorted(Path("s").glob("*asd.weight=10.0*"))[0]).config.asd
    assert (kept.weight, kept.entropy_power) == (10, 2)  # one setting of asd does not drop another
    assert Path("s/over.png").stat().st_size > 0
    Path("mine.yaml").write_text("rounds: 1")
    code, _, err = fedasd("sweep", "mine.yaml")
    assert code == 2
    assert "mine has no grid; say what to vary" in err


def test_a_run_that_was_killed_before_its_models_were_written_is_finished(
    fedasd: Fedasd, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (*TABLE_4_PART, "--seeds", "5", "--out", "k", "--quiet")
    fedasd(*words)
    models = Path("k/fedavg-seed5/models.pt")
    content = models.read_bytes()
    models.unlink()
    began: list[Any] = []
    monkeypatch.setattr(execution, "start_run", lambda *a: began.append(a))
    assert fedasd(*words)[0] == 0
    assert models.read_bytes() == content
    assert began == []

from __future__ import annotations

import csv
import json
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from fedasd_fast import presets
from fedasd_fast.callbacks import Progress
from fedasd_fast.cli import outputs
from fedasd_fast.cli.sweep import directory_name, parse_axis
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import Config
from fedasd_fast.report.run_outputs import summary
from fedasd_fast.simulation import context
from fedasd_fast.simulation.storage.recorded_run import RecordedRun

from .conftest import SMALL_SETTINGS, Fedasd


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_run_leaves_everything_in_its_folder(fedasd: Fedasd) -> None:
    code, out, err = fedasd("run", "quickstart", *SMALL_SETTINGS)
    assert code == 0
    folder = Path("runs/quickstart-fedavg+asd-seed0")
    assert [row["round"] for row in metrics(folder)] == [1, 2]
    for name in ("config.yaml", "versions.jsonl", "accuracy.png", "summary.txt", "report.html"):
        assert (folder / name).stat().st_size > 0
    assert "quickstart: FedAvg+ASD, seed 0, 2 of 2 rounds" in out
    assert f"sel {metrics(folder)[-1]['acc_sel']:.2f} %" in out
    assert "client updates/s" in out
    assert (folder / "summary.txt").read_text() in out
    assert "round 2/2" in err

    fedasd("run", "quickstart", *SMALL_SETTINGS, "--quiet")  # a second one goes beside it
    again = Path("runs/quickstart-fedavg+asd-seed0-2")
    assert [row["acc_all"] for row in metrics(again)] == [row["acc_all"] for row in metrics(folder)]


def test_a_configuration_file_and_an_existing_folder(fedasd: Fedasd) -> None:
    Path("mine.yaml").write_text("clients: 10\nrounds: 1\nlocal_epochs: 1\nsynthetic: {test_samples: 20}\n")
    code, out, err = fedasd("run", "mine.yaml", "--out", "here", "--quiet", "method=feddyn", "seed=4")
    assert code == 0
    assert out.startswith("mine: FedDyn, seed 4, 1 of 1 rounds")
    assert err == ""
    code, _, err = fedasd("run", "mine.yaml", "--out", "here")
    assert code == 2
    assert "continue it with `fedasd resume here`" in err


def test_the_configuration_of_a_run_repeats_it_elsewhere(fedasd: Fedasd) -> None:
    fedasd("run", "quickstart", *SMALL_SETTINGS, "--out", "my runs/first", "--quiet")
    code, _, _ = fedasd("run", "my runs/first/config.yaml", "--quiet")
    again = Path("runs/quickstart-fedavg+asd-seed0")
    assert code == 0
    assert [row["acc_all"] for row in metrics(again)] == [row["acc_all"] for row in metrics(Path("my runs/first"))]
    _, _, err = fedasd("run", "quickstart", "--out", "my runs/first")
    assert "`fedasd resume 'my runs/first'`" in err  # can be copied


def test_the_plan_runs_nothing(fedasd: Fedasd, tmp_path: Path) -> None:
    code, out, _ = fedasd("run", "quickstart", "--dry-run")
    assert code == 0
    assert "local steps" in out
    assert "memory in all" in out
    assert re.search(r"^  time: a round +[\d.]+ s, (whole-client op|one client at a time)$", out, re.MULTILINE)
    assert re.search(r"^  time: an evaluation +[\d.e-]+ s, 30 of them$", out, re.MULTILINE)
    assert re.search(r"^  time in all +about [\d.]+ (s|min) on this machine", out, re.MULTILINE)
    _, out, _ = fedasd("run", "quickstart", "--dry-run", "executor=stacked", "clients_at_once=4", "client_op=off")
    assert "s, stacked, 4 clients at a time" in out
    _, out, _ = fedasd("run", "quickstart", "--dry-run", "executor=processes", "workers=3")
    assert "s, 3 workers, one client at a time" in out
    assert "time: start of workers" in out
    _, out, _ = fedasd("run", "quickstart", "--dry-run", "optimizer.lr=1e30", "optimizer.clip_norm=null")
    assert "unknown: no client of the first rounds could be trained" in out
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_run_says_how_to_go_on(fedasd: Fedasd, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "on_round", lambda self, metrics: signal.raise_signal(signal.SIGINT))
        code, _, err = fedasd("run", "quickstart", *SMALL_SETTINGS, "--out", "here")
    assert code == 130
    assert "continue with `fedasd resume here`" in err
    assert len(metrics(Path("here"))) == 1
    code, out, _ = fedasd("resume", "here", "--quiet")
    assert code == 0
    assert "2 of 2 rounds" in out
    code, out, err = fedasd("resume", "here", "rounds=3")  # no earlier round depends on it
    assert "3 of 3 rounds" in out
    assert "rounds: 2 -> 3" in err.splitlines()
    code, _, err = fedasd("resume", "here", "optimizer.lr=0.5")
    assert code == 2
    assert "optimizer" in err


def test_replay(fedasd: Fedasd) -> None:
    fedasd("run", "quickstart", *SMALL_SETTINGS, "participation=1.0", "--out", "here", "--quiet")
    code, out, _ = fedasd("replay", "here", "--round", "2", "--client", "3")
    assert code == 0
    assert "client 3 in round 2" in out
    assert "local step    1  loss" in out
    assert fedasd("replay", "here", "--round", "9", "--client", "3")[0] == 2


def test_compare_repeats_nothing_and_resumes(fedasd: Fedasd, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("compare", "quickstart", *SMALL_SETTINGS, "--seeds", "0,1", "--out", "both")
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "on_round", lambda self, metrics: signal.raise_signal(signal.SIGINT))
        assert fedasd(*words)[0] == 130
    assert [len(metrics(folder)) for folder in Path("both").iterdir()] == [1]
    code, out, _ = fedasd(*words, "--quiet")
    assert code == 0
    folders = {path.parent.name for path in Path("both").glob("*/config.yaml")}
    assert folders == {f"{method}-seed{seed}" for method in ("fedavg", "fedavg+asd") for seed in (0, 1)}
    assert all(len(metrics(Path("both") / folder)) == 2 for folder in folders)
    assert Path("both/compare.png").stat().st_size > 0
    assert " ± " in out

    before = {path: path.stat().st_mtime_ns for path in Path("both").glob("*/metrics.jsonl")}
    code, again, _ = fedasd(*words)
    assert again.count("finished already") == 4
    assert again.splitlines()[-6:] == out.splitlines()[-6:]  # the same table
    assert before == {path: path.stat().st_mtime_ns for path in before}

    code, _, err = fedasd(*words, "batch_size=5")
    assert code == 2
    assert "other settings (batch_size = 10, not 5)" in err


def test_a_further_method_extends_the_comparison(fedasd: Fedasd) -> None:
    words = ("compare", "quickstart", *SMALL_SETTINGS, "executor=serial", "--out", "both", "--quiet")
    fedasd(*words)
    code, out, err = fedasd(*words, "--methods", "feddyn", "--seeds", "0,1")
    assert (code, err) == (0, "")
    assert "with 2 runs that both had before: FedAvg seed 0, FedAvg+ASD seed 0" in out.splitlines()
    rows = {line.split()[0]: line.split()[1] for line in out.splitlines() if line.startswith("Fed")}
    assert rows == {"FedDyn": "2", "FedAvg": "1", "FedAvg+ASD": "1"}  # seeds
    assert "FedAvg+ASD" in Path("both/compare.txt").read_text()
    page = Path("both/report.html").read_text()
    assert all(f">{label}</th>" in page for label in rows)

    fedasd("run", "quickstart", *SMALL_SETTINGS, "batch_size=5", "seed=3", "--out", "both/other", "--quiet")
    shutil.copytree("both/feddyn-seed0", "both/copy")
    code, out, err = fedasd(*words)
    assert "with 2 runs that both had before: FedDyn seed 0, FedDyn seed 1" in out.splitlines()
    assert "fedasd: both/other is left out: it has other settings (batch_size = 5, not 10)" in err
    assert "it counts once" in err


def test_sweep_runs_every_combination(fedasd: Fedasd) -> None:
    over = ("--over", "asd.weight=1,10", "--over", "method=fedavg+asd,feddyn+asd")
    code, out, _ = fedasd("sweep", "quickstart", *over, *SMALL_SETTINGS, "--out", "grid", "--quiet")
    assert code == 0
    rows = list(csv.DictReader(Path("grid/results.csv").read_text().splitlines()))
    pairs = [(row["asd.weight"], row["method"]) for row in rows]
    assert pairs == [("1", "fedavg+asd"), ("1", "feddyn+asd"), ("10", "fedavg+asd"), ("10", "feddyn+asd")]
    assert all(float(row["acc_all"]) >= 0 for row in rows)
    assert "asd.weight=10, method=feddyn+asd" in out
    assert Path("grid/sweep.png").stat().st_size > 0


def test_several_runs_are_listed_counted_and_announced(fedasd: Fedasd, tmp_path: Path) -> None:
    words = ("compare", "quickstart", *SMALL_SETTINGS, "--methods", "fedavg", "--seeds", "0,1", "--out", "few")
    code, out, _ = fedasd(*words, "--dry-run")
    assert code == 0
    assert out.splitlines()[:2] == ["few/fedavg-seed0  2 rounds", "few/fedavg-seed1  2 rounds"]
    assert re.fullmatch(r"2 runs, 4 rounds, about [\d.]+ s on this machine", out.splitlines()[2])
    assert not list(tmp_path.iterdir())
    _, _, err = fedasd(*words)
    announced = [line for line in err.splitlines() if line.startswith("[")]
    assert announced == ["[1/2] FedAvg, seed 0", "[2/2] FedAvg, seed 1"]
    assert err.splitlines()[1] == "fedasd: quickstart fedavg: loading data, measuring executors"
    done = fedasd(*words, "--dry-run")[1].splitlines()
    assert (done[0], done[2]) == ("few/fedavg-seed0  2 rounds (2 done)", "2 runs, 4 rounds, all of them finished")
    code, _, err = fedasd(*words, "batch_size=5", "--dry-run")
    assert (code, "batch_size = 10, not 5" in err) == (2, True)

    over = ("sweep", "quickstart", *SMALL_SETTINGS, "--over", "asd.weight=1,10", "--out", "grid")
    _, out, _ = fedasd(*over, "--dry-run")
    assert out.splitlines()[:2] == [f"grid/asd.weight={w}-seed0  2 rounds" for w in (1, 10)]
    assert out.splitlines()[2].startswith("2 runs, 4 rounds, about ")
    assert "[2/2] asd.weight=10, seed 0" in fedasd(*over)[2].splitlines()


def test_loading_is_announced_before_it_begins(
    fedasd: Fedasd, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    real = context.federate

    def federate(*arguments: Any, **keywords: Any) -> Any:
        said.append(capsys.readouterr().err)
        return real(*arguments, **keywords)

    monkeypatch.setattr(context, "federate", federate)
    words = ("quickstart", *SMALL_SETTINGS, "--out", "here")
    for command in (
        ("run", *words, "--dry-run"),
        ("run", *words),
        ("resume", "here", "rounds=3"),
        ("analyse", "here", "--only", "drift"),
        ("compare", "quickstart", *SMALL_SETTINGS, "--methods", "fedavg", "--out", "both", "--dry-run"),
        ("compare", "quickstart", *SMALL_SETTINGS, "--methods", "fedavg", "--out", "both"),
    ):
        said.clear()
        assert fedasd(*command)[0] == 0, command
        assert "loading data" in said[0], command


def test_what_is_given_twice_counts_once(fedasd: Fedasd) -> None:
    words = ("--seeds", "0,0", "--methods", "fedavg,fedavg", "--out", "twice", "--quiet")
    code, out, err = fedasd("compare", "quickstart", *SMALL_SETTINGS, *words)
    assert code == 0
    assert err.splitlines() == [
        "fedasd: seed 0 is given more than once; it counts once",
        "fedasd: method fedavg is given more than once; it counts once",
    ]
    assert " ± " not in out
    shutil.copytree("twice/fedavg-seed0", "twice/copy")
    code, out, err = fedasd("report", "twice")
    assert "(1 run)" in out
    assert "has the settings and the seed of" in err
    assert "it counts once" in Path("twice/report.html").read_text()


def test_a_sweep_over_seeds(fedasd: Fedasd) -> None:
    code, out, _ = fedasd("sweep", "quickstart", *SMALL_SETTINGS, "--over", "seed=0,1", "--out", "seeds", "--quiet")
    assert code == 0
    assert " ± " in out
    assert {path.parent.name for path in Path("seeds").glob("*/config.yaml")} == {f"fedavg+asd-seed{s}" for s in (0, 1)}
    assert [row["seed"] for row in csv.DictReader(Path("seeds/results.csv").read_text().splitlines())] == ["0", "1"]


def test_the_values_of_a_sweep() -> None:
    assert parse_axis("asd.weight=1,3.5") == ("asd.weight", [1, 3.5])
    assert parse_axis("model_args.hidden=[64],[128,64]") == ("model_args.hidden", [[64], [128, 64]])
    assert directory_name({"model": "my.module:Net", "a": [1, 2]}) == "model=my.module_Net,a=_1,2_"
    with pytest.raises(ConfigError, match="expected key=v1,v2"):
        parse_axis("asd.weight=")


def test_the_summary_has_the_papers_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = presets.load("cifar100-500clients", ["rounds=10"])
    row = {"round": 10, "acc_all": 9.0, "acc_sel": 8.5, "acc_cloud": 8.5, "seconds": 4.0, "client_updates": 50}
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    outputs.write_outputs(RecordedRun("FedAvg+ASD", config, [row], tmp_path))
    out = capsys.readouterr().out
    assert "paper     31.28 % (Table 4, model sel, 1000 rounds; different here: augment, rounds, teacher)" in out
    assert "12.5 client updates/s" in out


def test_failed_clients_are_counted_in_the_summary(tmp_path: Path) -> None:
    rows = [
        {"round": r, "client_updates": 4, "seconds": 1.0, "failed": {"3": "diverged"} if r > 1 else {}}
        for r in (1, 2, 3)
    ]
    run = RecordedRun("FedAvg", Config(rounds=3), rows, tmp_path)
    assert "  warning   2 of 14 client updates failed and were left out, in 2 rounds" in summary(run, None)
    assert "warning" not in summary(RecordedRun("FedAvg", Config(rounds=3), rows[:1], tmp_path), None)


def test_a_run_without_matplotlib_is_a_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    config = Config(rounds=0)
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    outputs.write_outputs(RecordedRun("FedAvg", config, [], tmp_path))
    out = capsys.readouterr().out
    assert not (tmp_path / "report.html").exists()
    assert "accuracy  not evaluated" in out
    assert "no plot: plots need matplotlib" in out


def test_threads_and_generators_are_left_alone(fedasd: Fedasd) -> None:
    before = torch.get_num_threads(), torch.random.get_rng_state()
    fedasd("run", "quickstart", *SMALL_SETTINGS, "--quiet")
    assert torch.get_num_threads() == before[0]
    assert torch.equal(torch.random.get_rng_state(), before[1])

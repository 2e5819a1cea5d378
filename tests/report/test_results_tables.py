from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from fedasd_fast.common.schema import ConfigError
from fedasd_fast.report.results_tables import results_table
from fedasd_fast.simulation.storage.recorded_run import RecordedRun, read_run

from .synthetic_runs import synthetic_run


def test_seeds_are_one_row() -> None:
    runs = [synthetic_run(accuracies={10: 60.0}), synthetic_run(accuracies={10: 62.0}, seed=1), synthetic_run("FedDyn")]
    table = results_table(runs, {"FedAvg": "61.50 (all)"})
    columns = list(table.columns)
    assert len(table.rows) == 2
    row = dict(zip(columns, table.rows[0], strict=True))
    assert row["acc all"] == "61.00 ± 1.41"
    assert row["acc sel"] == "60.00 ± 1.41"
    assert row["seconds"] == "10.5"  # two runs of ten rounds of half a second, and one evaluation each
    assert row["client updates/s"] == "8.0"
    assert row["paper"] == "61.50 (all)"
    assert dict(zip(columns, table.rows[1], strict=True))["acc all"] == "-"


def test_a_run_is_read_back(tmp_path: Path) -> None:
    run = synthetic_run(accuracies={5: 40.0}, method="feddyn+asd")
    (tmp_path / "config.yaml").write_text(run.config.to_yaml())
    assert read_run(tmp_path).rounds == 0
    (tmp_path / "metrics.jsonl").write_text('{"round": 1, "acc_all": 10.0}\n{"round": 2, "acc_all": NaN}\n{"roun')
    found = read_run(tmp_path)
    assert (found.label, found.rounds, found.finished) == ("FedDyn+ASD", 2, False)
    assert found.accuracy("all") == 10.0
    assert math.isnan(found.metrics[1]["acc_all"])
    (tmp_path / "metrics.jsonl").write_text('{"roun\n{"round": 2}\n')
    assert [line.number for line in read_run(tmp_path).bad_lines] == [1]
    assert read_run(tmp_path).rounds == 2
    with pytest.raises(ConfigError, match=r"no config\.yaml"):
        read_run(tmp_path / "elsewhere")


def test_a_run_that_trained_nobody_has_no_speed() -> None:
    run = synthetic_run()
    assert RecordedRun("", run.config, []).updates_per_second == 0.0
    assert RecordedRun("", run.config, []).accuracy("all") is None


def test_the_headline_comes_first() -> None:
    run = synthetic_run(accuracies={10: 60.0})
    assert results_table([run]).columns[3:6] == ["acc cloud", "acc sel", "acc all"]
    without = replace(run, metrics=[{key: row[key] for key in row if key != "acc_sel"} for row in run.metrics])
    assert "acc sel" not in results_table([without]).columns  # nobody evaluated it
    of_the_paper = replace(run, config=run.config.replace(name="table2_cifar100"))
    table = results_table([of_the_paper])
    assert table.columns[3:6] == ["acc all", "acc cloud", "acc sel"]
    assert "all: average of all clients' latest models (never sampled: the initial one)" in table.note.splitlines()

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import pytest

from fedasd_fast.common.formatting import pretty, written
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.common.table import Table
from fedasd_fast.report.results_tables import mean_text, results_table
from fedasd_fast.simulation.storage.recorded_run import Run, read, read_rows, shown_model

from .synthetic_runs import made_run


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_seeds_are_one_row() -> None:
    runs = [made_run(accuracies={10: 60.0}), made_run(accuracies={10: 62.0}, seed=1), made_run("FedDyn")]
    table = results_table(runs, {"FedAvg": "61.50 (all)"})
    columns = list(table.columns)
    assert len(table.rows) == 2
    row = dict(zip(columns, table.rows[0], strict=True))
    assert row["acc all"] == "61.00 ± 1.41"
    assert row["acc sel"] == "60.00 ± 1.41"
    assert "acc cloud" not in row  # nobody evaluated it
    assert row["seconds"] == "10.5"  # two runs of ten rounds of half a second, and one evaluation each
    assert row["client updates/s"] == "8.0"
    assert row["paper"] == "61.50 (all)"
    assert dict(zip(columns, table.rows[1], strict=True))["acc all"] == "-"


def test_a_pipe_gets_plain_text_and_a_terminal_a_drawing() -> None:
    table = Table(["name", "number"], [["a", "1"], ["long name", "22"]], "Title", "Note")
    plain, drawn = io.StringIO(), Terminal()
    table.show(plain)
    table.show(drawn)
    assert plain.getvalue().splitlines() == [
        "Title", "name       number", "---------  ------", "a               1", "long name      22", "Note",
    ]  # fmt: skip
    assert all(word in drawn.getvalue() for word in ("Title", "long name", "22", "Note", "─"))


def test_csv(tmp_path: Path) -> None:
    path = Table(["a", "b"], [["1,5", "2"]]).save_csv(tmp_path / "table.csv")
    assert list(csv.reader(path.open())) == [["a", "b"], ["1,5", "2"]]


def test_numbers_over_seeds() -> None:
    assert mean_text([93.456]) == "93.46"
    assert mean_text([None, 90.0, 94.0]) == "92.00 ± 2.83"
    assert mean_text([None]) == "-"


def test_a_run_is_read_back(tmp_path: Path) -> None:
    run = made_run(accuracies={5: 40.0}, method="feddyn+asd")
    (tmp_path / "config.yaml").write_text(run.config.to_yaml())
    assert read(tmp_path).rounds == 0
    (tmp_path / "metrics.jsonl").write_text('{"round": 1, "acc_all": 10.0}\n{"round": 2, "acc_all": NaN}\n{"roun')
    found = read(tmp_path)
    assert (found.label, found.rounds, found.finished) == ("FedDyn+ASD", 2, False)
    assert found.accuracy("all") == 10.0
    assert math.isnan(found.metrics[1]["acc_all"])
    (tmp_path / "metrics.jsonl").write_text('{"roun\n{"round": 2}\n')
    with pytest.raises(ConfigError, match="line 1, is not valid JSON"):
        read(tmp_path)
    with pytest.raises(ConfigError, match=r"no config\.yaml"):
        read(tmp_path / "elsewhere")
    assert read_rows(tmp_path / "missing.jsonl") == []


def test_a_run_that_trained_nobody_has_no_speed() -> None:
    run = made_run()
    assert Run("", run.config, []).updates_per_second == 0.0
    assert Run("", run.config, []).accuracy("all") is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(12161.4, "12,161"), (-1000, "-1,000"), (999.96, "1,000"), (999.94, "999.9"), (13.674, "13.67"), (0, "0")],
)
def test_large_numbers_are_written_without_an_exponent(value: float, text: str) -> None:
    assert written(value) == text


def test_names() -> None:
    assert pretty("scaffold+asd") == "SCAFFOLD+ASD"
    assert pretty("my.module:Method") == "my.module:Method"
    assert shown_model(made_run().config, "sel") == "sel"
    assert shown_model(made_run(eval_models=("cloud",)).config, "sel") == "cloud"

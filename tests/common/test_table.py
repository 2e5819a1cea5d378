from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

from fedasd_fast.common.table import Table

from .terminal import Terminal


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


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_no_cell_is_cut_in_a_narrow_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    names = ["", "seeds", *(f"acc {model}" for model in ("cloud", "sel", "all")), "client updates/s"]
    rows = [["FedSpeed+ASD", "2", "95.50 ± 0.14", "94.50 ± 0.14", "92.00 ± 0.42", "211.9"]]
    drawn = Terminal()
    Table(names, rows).show(drawn)
    shown = re.sub(r"\x1b\[\d*m", "", drawn.getvalue())  # without colours
    assert all(cell in shown for cell in (*names, *rows[0]))
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= columns

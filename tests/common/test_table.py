from __future__ import annotations

import csv
import io
from pathlib import Path

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

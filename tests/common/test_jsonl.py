"""JSON Lines: a torn last line is cut, other bad lines are reported, and no other row is dropped."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedasd_fast.common import jsonl
from fedasd_fast.config import Config
from fedasd_fast.simulation.storage.recorded_run import read_run
from fedasd_fast.simulation.storage.run_directory import RunDirectory

ROWS = st.dictionaries(st.text(), st.none() | st.integers() | st.floats(allow_nan=False) | st.text(), max_size=4)
BAD_LINES = st.sampled_from([b"{", b'{"round": 1', b"garbage", b"\xff\xfe", b"\x00\x00", b"[1, 2]", b"7", b"null"])


def rows_of(path: Path, content: bytes, **options: Any) -> jsonl.JsonLines:
    path.write_bytes(content)
    found = jsonl.read(path, **options)
    assert path.read_bytes() == content  # reading changes nothing
    return found


def test_a_missing_or_empty_file_has_no_rows(tmp_path: Path) -> None:
    assert jsonl.read(tmp_path / "missing.jsonl") == jsonl.JsonLines([], [])
    for content in (b"", b"\n", b"\n \n\n"):
        assert rows_of(tmp_path / "file", content) == jsonl.JsonLines([], [])


@pytest.mark.parametrize("tail", [b'{"round": 3, "lo', b'{"round": 3}garbage\n', b"\x00\x00", b'{"a": "\xc3', b"{\n\n"])
def test_a_torn_last_line_is_cut(tail: bytes, tmp_path: Path) -> None:
    found = rows_of(tmp_path / "file", b'{"round": 1}\n{"round": 2}\n' + tail)
    assert found == jsonl.JsonLines([{"round": 1}, {"round": 2}], [])


def test_a_complete_last_line_without_a_newline_is_kept(tmp_path: Path) -> None:
    assert rows_of(tmp_path / "file", b'{"round": 1}\n{"round": 2}').rows == [{"round": 1}, {"round": 2}]


def test_bad_lines_in_the_middle_are_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    found = rows_of(path, b'{"round": 1}\n{"rou\n\n[3]\n{"round": true}\n{"round": 6}\n', integer_key="round")
    assert found.rows == [{"round": 1}, {"round": 6}]
    assert [line.number for line in found.bad_lines] == [2, 4, 5]
    first, second, third = map(str, found.bad_lines)
    assert first.startswith(f"{path}, line 2, is left out: it is not valid JSON")
    assert second.endswith("line 4, is left out: it is not an object: [3]")
    assert third.endswith('line 5, is left out: it has no whole number `round`: {"round": true}')


def test_a_last_line_of_another_kind_is_not_torn(tmp_path: Path) -> None:
    (line,) = rows_of(tmp_path / "file", b'{"round": 1}\n{"loss": 2}\n', integer_key="round").bad_lines
    assert line.number == 2


@given(st.lists(ROWS | BAD_LINES, max_size=8), st.binary(max_size=6), st.booleans())
def test_no_good_row_is_ever_dropped(
    tmp_path_factory: pytest.TempPathFactory, lines: list[Any], tail: bytes, newline: bool
) -> None:
    rows = [line for line in lines if isinstance(line, dict)]
    content = b"".join(line + b"\n" if isinstance(line, bytes) else jsonl.dump([line]) for line in lines)
    torn = b'{"torn": ' + tail.replace(b"\n", b"") + (b"\n" if newline else b"")
    found = rows_of(tmp_path_factory.getbasetemp() / "rows", content + torn)
    if found.rows[len(rows) :]:  # the random bytes may complete the object
        assert found.rows[len(rows) :] == [json.loads(torn)]
    assert found.rows[: len(rows)] == rows
    bad = [number for number, line in enumerate(lines, 1) if isinstance(line, bytes)]
    assert [line.number for line in found.bad_lines] == bad


@given(st.lists(ROWS, max_size=8), st.data())
def test_a_file_that_is_cut_anywhere_loses_its_tail_only(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    content = jsonl.dump(rows)
    cut = data.draw(st.integers(0, len(content)))
    found = rows_of(tmp_path_factory.getbasetemp() / "cut", content[:cut])
    assert found.bad_lines == []
    assert found.rows == rows[: len(found.rows)]
    assert len(found.rows) >= content[:cut].count(b"\n")


def test_a_damaged_file_is_copied_before_it_is_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, folder = tmp_path / "metrics.jsonl", RunDirectory(tmp_path)
    path.write_bytes(b'{"round": 1}\n{"rou\n{"round": 3}\n{"round": 4}\n{"roun')
    with caplog.at_level(logging.WARNING):
        assert folder.metrics() == [{"round": 1}, {"round": 3}, {"round": 4}]
    assert f"{path}, line 2, is left out" in caplog.text
    assert not (tmp_path / "metrics.jsonl.damaged").exists()
    damaged = path.read_bytes()
    assert folder.rewind_metrics(3) == [{"round": 1}, {"round": 3}]
    assert path.read_bytes() == b'{"round": 1}\n{"round": 3}\n'
    assert (tmp_path / "metrics.jsonl.damaged").read_bytes() == damaged
    path.write_bytes(b'?\n{"round": 5}\n')  # damaged again: the first copy stays
    assert folder.rewind_metrics(9) == [{"round": 5}]
    assert (tmp_path / "metrics.jsonl.damaged").read_bytes() == damaged
    assert (tmp_path / "metrics.jsonl.damaged-2").read_bytes() == b'?\n{"round": 5}\n'


def test_a_torn_line_needs_no_copy(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b'{"round": 1}\n{"rou')
    assert RunDirectory(tmp_path).rewind_metrics(5) == [{"round": 1}]
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_versions_of_a_damaged_file_are_kept(tmp_path: Path) -> None:
    folder = RunDirectory(tmp_path)
    (tmp_path / "versions.jsonl").write_bytes(b'{"round": 0, "torch": "1"}\nbad\n{"round": 4, "torch": "2"}\n')
    folder.save(Config(), 9)
    rows = [json.loads(line) for line in (tmp_path / "versions.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [0, 4, 9]
    assert (tmp_path / "versions.jsonl.damaged").exists()


def test_a_recorded_run_tells_its_bad_lines(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(Config().to_yaml())
    (tmp_path / "metrics.jsonl").write_bytes(b'{"round": 1, "acc_all": 10.0}\n?\n{"round": 3, "acc_all": 30.0}\n')
    run = read_run(tmp_path)
    assert run.accuracies("all") == {1: 10.0, 3: 30.0}
    assert [line.number for line in run.bad_lines] == [2]

"""JSON Lines files: one object per line, read with one policy for damaged lines.

A last line that is not valid JSON was being written when its process died; it is left out.  Any other line that cannot
be used is reported with its file and number, and every other row is kept.  Reading never changes the file; whoever
replaces a damaged file copies it to `damaged_copy` first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .files import read_bounded

MAX_BYTES = 1 << 30  # a million rounds have a quarter of it


@dataclass(frozen=True)
class BadLine:
    """A line that could not be used."""

    path: Path
    number: int  # the first line is 1
    reason: str

    def __str__(self) -> str:
        return f"{self.path}, line {self.number}, is left out: {self.reason}"


@dataclass(frozen=True)
class JsonLines:
    rows: list[dict[str, Any]]
    bad_lines: list[BadLine]


def read(
    path: Path, integer_key: str | None = None, wrong: Callable[[dict[str, Any]], str | None] = lambda row: None
) -> JsonLines:
    """The rows of the file, none if it does not exist.  With `integer_key`, every row must have an integer there, 0 or
    more; `wrong` says what else is wrong with a row."""
    rows: list[dict[str, Any]] = []
    bad: list[BadLine] = []
    # Bytes: str.splitlines would also split at characters that JSON allows inside of strings.
    lines = read_bounded(path, MAX_BYTES).rstrip(b"\n").split(b"\n") if path.is_file() else []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode())
        except (ValueError, RecursionError) as error:  # ValueError: not UTF-8, or not JSON
            if number < len(lines):
                why = f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else error
                bad.append(BadLine(path, number, f"it is not valid JSON ({why})"))
            continue
        if reason := _unusable(row, integer_key) or wrong(row):
            bad.append(BadLine(path, number, f"{reason}: {line[:60].decode(errors='replace')}"))
        else:
            rows.append(row)
    return JsonLines(rows, bad)


def dump(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def damaged_copy(path: Path) -> Path:
    """Where to copy a damaged file: NAME.damaged, or NAME.damaged-2 and so on if an earlier copy differs."""
    data, copy, number = path.read_bytes(), path.with_name(path.name + ".damaged"), 2
    while copy.exists() and copy.read_bytes() != data:
        copy, number = path.with_name(f"{path.name}.damaged-{number}"), number + 1
    return copy


def _unusable(row: Any, integer_key: str | None) -> str | None:
    if not isinstance(row, dict):
        return "it is not an object"
    if integer_key is not None:
        value = row.get(integer_key)
        if type(value) is not int or not 0 <= value < 2**53:  # a bool is no round number
            return f"it has no whole number `{integer_key}`"
    return None

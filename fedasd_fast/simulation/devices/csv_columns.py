"""Columns of numbers from a CSV file that describes devices; errors name the file, the line and the remedy."""

from __future__ import annotations

import csv
import io
import math
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...common.files import read_bounded
from ...common.schema import ConfigError

_MAX_BYTES = 1 << 28


class CsvColumns:
    def __init__(self, path: str, setting: str, columns: Sequence[str], optional: Sequence[str]) -> None:
        """`columns` are numbers; of the `optional` ones a file may have one, which is kept as it is."""
        self.path, self.setting = path, setting
        content = _read(path, setting)
        self.checksum = f"{zlib.crc32(content):08x}"
        try:
            lines = list(csv.reader(io.StringIO(content.decode())))
        except (UnicodeDecodeError, csv.Error) as error:
            raise ConfigError(f"{setting} = {path} is no CSV file: {error}") from None
        names = [name.strip() for name in lines[0]] if lines else []
        extra = [name for name in names if name in optional]
        if sorted(names) != sorted([*columns, *extra]) or len(extra) > 1:
            may = f" and perhaps {' or '.join(optional)}" if optional else ""
            expected = f"a first line with the columns {', '.join(columns)}{may}"
            raise ConfigError(f"{setting} = {path} begins with {','.join(names)!r:.100}; expected {expected}")
        rows = [(number, row) for number, row in enumerate(lines[1:], 2) if row]
        if not rows:
            raise ConfigError(f"{setting} = {path} has no line below its first one")
        for number, row in rows:
            if len(row) != len(names):
                raise ConfigError(f"{path}, line {number}: {len(row)} values; expected {len(names)}")
        self._lines = [number for number, _ in rows]
        self._cells = {name: [row[at].strip() for _, row in rows] for at, name in enumerate(names)}

    def __len__(self) -> int:
        return len(self._lines)

    def __contains__(self, name: str) -> bool:
        return name in self._cells

    def numbers(self, name: str, least: float, expected: str) -> np.ndarray:
        """float64; each larger than `least`, or equal to it if it is 0."""
        return np.array([self._number(name, row, least, expected) for row in range(len(self))])

    def _number(self, name: str, row: int, least: float, expected: str) -> float:
        try:
            value = float(self._cells[name][row])
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < least:
            raise self.error(row, name, expected)
        return value

    def clients(self, population: int) -> np.ndarray:
        """The column `client`: int64."""
        expected = f"the number of a client, 0 .. {population - 1}"
        found = self.numbers("client", 0, expected)
        for row, value in enumerate(found):
            if not value.is_integer() or value >= population:
                raise self.error(row, "client", expected)
        return found.astype(np.int64)

    def words(self, name: str) -> list[str]:
        return self._cells[name]

    def error(self, row: int, name: str, expected: str) -> ConfigError:
        return ConfigError(
            f"{self.path}, line {self._lines[row]}: {name} = {self._cells[name][row]!r:.60}; expected {expected}"
        )


def _read(path: str, setting: str) -> bytes:
    try:
        return read_bounded(Path(path), _MAX_BYTES)
    except OSError as error:
        raise ConfigError(f"{setting} = {path} cannot be read: {error.strerror or error}") from None

"""Text tables: drawn in a terminal, plain text in a pipe, Markdown or CSV in a file."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from .files import write_atomically


@dataclass(frozen=True)
class Table:
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    note: str = ""

    def text(self) -> str:
        """Columns padded with spaces; the first is left-aligned, the others right-aligned."""
        lines = [self.columns, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        lines.insert(1, ["-" * width for width in widths])
        body = [_padded(line, widths) for line in lines]
        return "\n".join(text for text in (self.title, *body, self.note) if text)

    def markdown(self) -> str:
        """A GitHub table, aligned like the text."""
        marks = [":--", *["--:"] * (len(self.columns) - 1)]
        lines = [[cell.replace("|", "\\|") for cell in row] for row in (self.columns, marks, *self.rows)]
        body = "\n".join(f"| {' | '.join(row)} |" for row in lines)
        return "\n\n".join(text for text in (self.title, body, self.note) if text)

    def show(self, file: TextIO | None = None) -> None:
        file = file or sys.stdout
        if not file.isatty():
            print(self.text(), file=file)
            return
        from rich import box
        from rich.console import Console
        from rich.table import Table as RichTable

        console = Console(file=file)
        if self.title:
            console.print(self.title, markup=False, highlight=False)
        for part in self._parts(console.width):
            table = RichTable(box=box.SIMPLE_HEAD)
            for i in part:
                table.add_column(self.columns[i], justify="right" if i else "left", no_wrap=i > 0, overflow="fold")
            for row in self.rows:
                table.add_row(*(row[i] for i in part))
            console.print(table)
        if self.note:
            console.print(self.note, markup=False, highlight=False)

    def _parts(self, width: int) -> list[list[int]]:
        """The columns in groups that fit, each with the first column, so that no cell is cut in a narrow terminal."""
        widths = [3 + max(len(line[i]) for line in (self.columns, *self.rows)) for i in range(len(self.columns))]
        parts: list[list[int]] = [[0]]
        for i in range(1, len(widths)):
            if len(parts[-1]) > 1 and sum(widths[j] for j in parts[-1]) + widths[i] >= width:
                parts.append([0])
            parts[-1].append(i)
        return parts

    def csv(self) -> str:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows([self.columns, *self.rows])
        return text.getvalue()

    def save_csv(self, path: str | Path) -> Path:
        path = Path(path)
        write_atomically(path, self.csv().encode())
        return path


def _padded(line: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
    return "  ".join([line[0].ljust(len(first)), *others]).rstrip()

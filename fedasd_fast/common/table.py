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

        table = RichTable(
            title=self.title or None, caption=self.note or None, box=box.SIMPLE_HEAD, title_justify="left"
        )
        for i, column in enumerate(self.columns):
            table.add_column(column, justify="left" if i == 0 else "right")
        for row in self.rows:
            table.add_row(*row)
        Console(file=file).print(table)

    def save_csv(self, path: str | Path) -> Path:
        path = Path(path)
        text = io.StringIO(newline="")
        csv.writer(text).writerows([self.columns, *self.rows])
        write_atomically(path, text.getvalue().encode())
        return path


def _padded(line: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
    return "  ".join([line[0].ljust(len(first)), *others]).rstrip()

"""Report of a comparison with the paper: tables as text, Markdown and HTML, everything as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..common import html
from ..common.formatting import format_accuracy, format_number, format_signed
from ..common.html import Html
from ..common.table import Table
from .verdict import RULE

_TEXT_WIDTH = 120  # characters


@dataclass(frozen=True)
class CellResult:
    """One number of the table.  Accuracies in percent, of the averaged model `model`, at round `round`."""

    label: str
    point: Mapping[str, Any]
    model: str
    planned_seeds: int
    planned_rounds: int
    seeds: tuple[int, ...]  # that the mean is over
    rounds: tuple[int, ...]  # done so far in each of them
    round: int | None  # of the accuracies
    mean: float | None
    std: float | None
    noise: float | None  # how much another seed might differ, by the rule
    values: tuple[float, ...]  # for each seed
    paper: float | None
    paper_std: float | None
    paper_rounds: int | None
    differs: tuple[str, ...]  # settings that differ from the paper's
    suspect: str | None  # why the paper's number should not be trusted
    verdict: str
    why: str | None  # it is not comparable
    also: Mapping[str, float]  # mean accuracies of the other averaged models
    hessian: Mapping[str, float]  # top_eigenvalue and trace, once the runs are analysed
    paper_hessian: Mapping[str, float]
    drawable: bool  # whether the paper's number may be plotted with these runs

    @property
    def difference(self) -> float | None:
        return None if self.mean is None or self.paper is None else self.mean - self.paper


@dataclass(frozen=True)
class AsdGain:
    """Points gained by ASD (or by adaptive over uniform weights), from pairs of runs with the same seed."""

    label: str
    over: str
    seeds: tuple[int, ...]
    round: int  # the last one that both runs of each seed have evaluated
    mean: float
    std: float | None
    paper: float | None
    verdict: str


@dataclass(frozen=True)
class PaperComparison:
    """All numbers of a grid with the paper's."""

    name: str
    source: str
    command: str
    choice: str | None  # what a time budget led to
    unstated: tuple[str, ...]  # settings that the paper does not state
    notes: tuple[str, ...]
    numbers: tuple[CellResult, ...]
    gains: tuple[AsdGain, ...]
    seconds: float

    @property
    def suspects(self) -> list[CellResult]:
        return [number for number in self.numbers if number.suspect]

    def accuracy_table(self) -> Table:
        columns = ["", "ours", "paper", "difference", "verdict", "model", "at round", "rounds", "seeds", "other models"]
        return Table(columns, [_accuracy_row(number) for number in self.numbers])

    def gain_table(self) -> Table:
        columns = ["gain of", "ours", "paper", "verdict", "over", "at round", "seeds"]
        rows = [
            [
                gain.label,
                format_signed(gain.mean) + ("" if gain.std is None else f" ± {gain.std:.2f}"),
                format_signed(gain.paper),
                gain.verdict,
                gain.over,
                str(gain.round),
                str(len(gain.seeds)),
            ]
            for gain in self.gains
        ]
        return Table(columns, rows)

    def flatness_table(self) -> Table:
        columns = ["flatness of", "top eigenvalue", "paper", "trace", "paper"]
        rows = [
            [
                number.label,
                *(
                    format_number(numbers[key]) if key in numbers else "-"
                    for key in ("top_eigenvalue", "trace")
                    for numbers in (number.hessian, number.paper_hessian)
                ),
            ]
            for number in self.numbers
            if number.hessian or number.paper_hessian
        ]
        return Table(columns, rows)

    def tables(self) -> list[Table]:
        return [table for table in (self.accuracy_table(), self.gain_table(), self.flatness_table()) if table.rows]

    def section(self) -> Html:
        """For the report page of the grid."""
        captions = {"": "Test accuracy in %", "gain of": "Gain in points", "flatness of": "Flatness"}
        tables = [html.table(table.columns, table.rows, captions[table.columns[0]]) for table in self.tables()]
        remarks = html.element("ul", *(html.element("li", remark) for remark in self.remarks()), class_="muted")
        command = html.command(self.command)
        return html.section(2, "Comparison with the paper", self.source, *tables, remarks, command)

    def remarks(self) -> list[str]:
        remarks = [RULE]
        for why in dict.fromkeys(number.why for number in self.numbers if number.why):
            labels = [number.label for number in self.numbers if number.why == why]
            which = "All of these runs" if len(labels) == len(self.numbers) else ", ".join(labels)
            remarks.append(f"{which}: {why}.")
        if self.choice:
            remarks.append(f"Budget: {self.choice}")
        if self.unstated:
            remarks.append(f"Not stated in the paper, chosen by us: {', '.join(self.unstated)}.")
        remarks += [f"* {number.label}: suspect in the paper: {number.suspect}." for number in self.suspects]
        if any(number.paper_hessian and not number.hessian for number in self.numbers):
            remarks.append("Eigenvalue and trace are read from RUN/analysis/hessian.json: run `fedasd analyse RUN`.")
        return [*remarks, *(f"Note: {note}." for note in self.notes)]

    def text(self) -> str:
        head = f"{self.name}: {self.source}" if self.source else self.name
        remarks = [textwrap.fill(remark, _TEXT_WIDTH) for remark in self.remarks()]
        return "\n\n".join([head, *(table.text() for table in self.tables()), *remarks])

    def markdown(self) -> str:
        tables = (table.markdown() for table in self.tables())
        parts = [f"# {self.name}", self.source, *tables, *self.remarks(), f"```\n{self.command}\n```"]
        return "\n\n".join(part for part in parts if part) + "\n"

    def json(self) -> str:
        return json.dumps({**asdict(self), "rule": RULE}, indent=1) + "\n"


def _accuracy_row(number: CellResult) -> list[str]:
    low, high = min(number.rounds, default=0), max(number.rounds, default=0)
    return [
        number.label,
        format_accuracy(number.mean, number.std),
        format_accuracy(number.paper, number.paper_std) + (" *" if number.suspect else ""),
        format_signed(number.difference),
        number.verdict,
        number.model,
        "-" if number.round is None else str(number.round),
        str(low) if low == high else f"{low}..{high}",
        f"{len(number.seeds)} of {number.planned_seeds}",
        ", ".join(f"{model} {mean:.2f}" for model, mean in number.also.items()),
    ]

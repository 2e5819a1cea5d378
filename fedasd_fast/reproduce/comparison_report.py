"""A grid's numbers beside the paper's: mean and deviation over seeds, the gain of ASD, and what to make of them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..common import html
from ..common.formatting import written
from ..common.html import Html
from ..common.table import Table
from .verdict import RULE

_WIDTH = 120  # of the text


@dataclass(frozen=True)
class Number:
    """One cell.  Accuracies in percent, of the averaged model `model`, at round `round`."""

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
    noise: float | None  # what another seed might change, by the rule
    values: tuple[float, ...]  # seed by seed
    paper: float | None
    paper_std: float | None
    paper_rounds: int | None
    differs: tuple[str, ...]  # settings that are not the paper's
    suspect: str | None
    verdict: str
    why: str | None  # it is not comparable
    also: Mapping[str, float]  # mean accuracies of the other averaged models
    hessian: Mapping[str, float]  # top_eigenvalue and trace, once the runs are analysed
    paper_hessian: Mapping[str, float]
    drawable: bool  # whether the paper's number may stand in a picture of these runs

    @property
    def difference(self) -> float | None:
        return None if self.mean is None or self.paper is None else self.mean - self.paper


@dataclass(frozen=True)
class Gain:
    """Points that ASD (or adaptive instead of uniform weights) adds, seed by seed on the same clients and start."""

    label: str
    over: str
    seeds: tuple[int, ...]
    round: int  # the last one that both runs of each seed have evaluated
    mean: float
    std: float | None
    paper: float | None
    verdict: str


@dataclass(frozen=True)
class Results:
    name: str
    source: str
    command: str
    choice: str | None  # what a time budget led to
    unstated: tuple[str, ...]  # settings that the paper leaves open
    notes: tuple[str, ...]
    numbers: tuple[Number, ...]
    gains: tuple[Gain, ...]
    seconds: float

    @property
    def suspects(self) -> list[Number]:
        return [number for number in self.numbers if number.suspect]

    def table(self) -> Table:
        columns = ["", "ours", "paper", "difference", "verdict", "model", "at round", "rounds", "seeds", "other models"]
        return Table(columns, [_row(number) for number in self.numbers])

    def gain_table(self) -> Table:
        columns = ["gain of", "ours", "paper", "verdict", "over", "at round", "seeds"]
        rows = [
            [
                gain.label,
                _signed(gain.mean) + ("" if gain.std is None else f" ± {gain.std:.2f}"),
                "-" if gain.paper is None else _signed(gain.paper),
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
                    written(numbers[key]) if key in numbers else "-"
                    for key in ("top_eigenvalue", "trace")
                    for numbers in (number.hessian, number.paper_hessian)
                ),
            ]
            for number in self.numbers
            if number.hessian or number.paper_hessian
        ]
        return Table(columns, rows)

    def tables(self) -> list[Table]:
        return [table for table in (self.table(), self.gain_table(), self.flatness_table()) if table.rows]

    def section(self) -> Html:
        """For the page of the grid."""
        captions = {"": "Test accuracy in %", "gain of": "Gain in points", "flatness of": "Flatness"}
        tables = [html.table(table.columns, table.rows, captions[table.columns[0]]) for table in self.tables()]
        remarks = html.element("ul", *(html.element("li", remark) for remark in self.remarks()), class_="muted")
        command = html.command(self.command)
        return html.section(2, "The paper's numbers and ours", self.source, *tables, remarks, command)

    def remarks(self) -> list[str]:
        said = [RULE]
        for why in dict.fromkeys(number.why for number in self.numbers if number.why):
            labels = [number.label for number in self.numbers if number.why == why]
            who = "Here, all" if len(labels) == len(self.numbers) else ", ".join(labels)
            said.append(f"{who}: {why}.")
        if self.choice:
            said.append(f"Budget: {self.choice}")
        if self.unstated:
            said.append(f"Not stated in the paper, so chosen: {', '.join(self.unstated)}.")
        said += [f"* {number.label}: suspect in the paper: {number.suspect}." for number in self.suspects]
        if any(number.paper_hessian and not number.hessian for number in self.numbers):
            said.append("Eigenvalue and trace are taken from RUN/analysis/hessian.json: run `fedasd analyse RUN`.")
        return [*said, *(f"Note: {note}." for note in self.notes)]

    def text(self) -> str:
        head = f"{self.name}: {self.source}" if self.source else self.name
        remarks = [textwrap.fill(remark, _WIDTH) for remark in self.remarks()]
        return "\n\n".join([head, *(table.text() for table in self.tables()), *remarks])

    def markdown(self) -> str:
        tables = (table.markdown() for table in self.tables())
        parts = [f"# {self.name}", self.source, *tables, *self.remarks(), f"```\n{self.command}\n```"]
        return "\n\n".join(part for part in parts if part) + "\n"

    def json(self) -> str:
        return json.dumps({**asdict(self), "rule": RULE}, indent=1) + "\n"


def _row(number: Number) -> list[str]:
    low, high = min(number.rounds, default=0), max(number.rounds, default=0)
    difference = number.difference
    return [
        number.label,
        _measured(number.mean, number.std),
        _measured(number.paper, number.paper_std) + (" *" if number.suspect else ""),
        "-" if difference is None else _signed(difference),
        number.verdict,
        number.model,
        "-" if number.round is None else str(number.round),
        str(low) if low == high else f"{low}..{high}",
        f"{len(number.seeds)} of {number.planned_seeds}",
        ", ".join(f"{model} {mean:.2f}" for model, mean in number.also.items()),
    ]


def _measured(mean: float | None, std: float | None) -> str:
    return "-" if mean is None else f"{mean:.2f}" + ("" if std is None else f" ± {std:.2f}")


def _signed(value: float) -> str:
    return f"{value:+.2f}"

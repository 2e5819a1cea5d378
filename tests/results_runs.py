"""The recorded runs in docs/results, and numbers of them as docs/results.md writes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from fedasd_fast.simulation.storage.recorded_run import read_run

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = DOCS / "results"
FEDAVG, FEDAVG_ASD = RESULTS / "table4/fedavg-seed0", RESULTS / "table4/fedavg+asd-seed0"
FEDAVG_SEED_1 = RESULTS / "table4-seed1/fedavg-seed1"
FEDAVG_ASD_SEED_1 = RESULTS / "table4-seed1/fedavg+asd-seed1"
FEDDYN, FEDDYN_ASD = RESULTS / "table4/feddyn-seed0", RESULTS / "table4/feddyn+asd-seed0"
FEDNTD, FEDNTD_ASD = RESULTS / "table4/fedntd-seed0", RESULTS / "table4/fedntd+asd-seed0"
FEDNTD_SEED_1, FEDNTD_20 = RESULTS / "table4-seed1/fedntd-seed1", RESULTS / "table4-weight20/fedntd-seed0"
BF16 = RESULTS / "table4-bf16/fedavg+asd-seed0"
UNIFORM, CACHE = RESULTS / "table4-uniform/fedavg+asd-seed0", RESULTS / "table4-cache/fedavg+asd-seed0"


def rounds_of(run: Path) -> Sequence[Mapping[str, Any]]:
    rows = read_run(run).metrics
    assert [row["round"] for row in rows] == list(range(1, 1001))
    return rows


def curve(run: Path, model: str) -> list[float]:
    return [row[f"acc_{model}"] for row in rounds_of(run) if f"acc_{model}" in row]


def accuracies(run: Path) -> list[float]:
    """`sel`, the mean of its last ten, `all`."""
    return [curve(run, "sel")[-1], fmean(curve(run, "sel")[-10:]), curve(run, "all")[-1]]


def analysis(run: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "analysis" / f"{name}.json").read_text())
    return found


def row(label: str, *cells: str) -> str:
    return f"| {' | '.join((label, *cells))} |"


def plain(values: Iterable[float]) -> list[str]:
    return [f"{value:.2f}" for value in values]


def signed(one: Sequence[float], other: Sequence[float]) -> list[str]:
    return [f"{a - b:+.2f}" for a, b in zip(one, other, strict=True)]

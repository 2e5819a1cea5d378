"""Statistics of the benchmarks, and reading the results of benchmarks.loss."""

from __future__ import annotations

import csv
import statistics
from pathlib import Path

Row = dict[str, str]
Results = dict[tuple[str, int, str], Row]  # by shape, threads and implementation

# With more of a core than this taken by others, a measurement counts as disturbed.
DISTURBED_CORES = 0.1


def summary(samples: list[float]) -> dict[str, float]:
    """At least two samples; the median and what lies a fifth of them to either side."""
    p20, _, _, p80 = statistics.quantiles(samples, n=5, method="inclusive")
    return {"best": min(samples), "median": statistics.median(samples), "p20": p20, "p80": p80}


def load(path: Path) -> Results:
    with path.open(newline="") as file:
        return {(row["shape"], int(row["threads"]), row["implementation"]): row for row in csv.DictReader(file)}


def disturbed(row: Row) -> bool:
    return bool(row["others_cpu"]) and float(row["others_cpu"]) > DISTURBED_CORES


def comparable(row: Row | None) -> bool:
    """Whether the row's time may be set against another's.

    OpenMP threads wait for each other by spinning.  Where another process holds a core that they need, an eager call
    with its dozen parallel regions takes up to a hundred times as long: a ratio would credit us with that.
    """
    return row is not None and bool(row["median"]) and not (int(row["threads"]) > 1 and disturbed(row))

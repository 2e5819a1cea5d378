"""When two means are the same up to luck."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

_UNKNOWN = 0.5  # points: root mean square of the deviations that the paper gives in tables 2 and 13
_LEAST = 0.2  # of three seeds, a smaller deviation is luck itself
_MOST = 5.0  # points: such scatter is a run that comes apart, and would excuse any difference
_EVALUATIONS = 10
_FEWEST = 5

RULE = (
    "Within noise: the difference is at most 2 sqrt(a^2 + b^2). b is the standard deviation of our seeds; with fewer "
    f"than three, at least the scatter of a run's last {_EVALUATIONS} evaluations around a straight line (an average "
    f"of few clients changes from round to round), or {_UNKNOWN} points if there are fewer than {_FEWEST} evaluations. "
    f"a is the paper's standard deviation, or b where it gives none. Both are at least {_LEAST} points. "
    f"Unstable: within noise, but of more than {_MOST:g} points, which proves nothing. "
    "Not comparable: another number of rounds than the paper's, or other settings."
)


def deviation(values: Sequence[float]) -> float | None:
    """Over seeds."""
    return statistics.stdev(values) if len(values) > 1 else None


def noise(seeds: Sequence[float], curves: Sequence[Sequence[float]]) -> float:
    """What another seed might change: `seeds` are final values, `curves` the evaluations that led to each."""
    between = deviation(seeds)
    if between is not None and len(seeds) > 2:
        return between
    within = [scatter(curve) for curve in curves if len(curve) >= _FEWEST]
    return max(between or 0.0, statistics.fmean(within) if within else _UNKNOWN)


def scatter(curve: Sequence[float]) -> float:
    """Standard deviation of the last evaluations from a straight line through them."""
    values = curve[-_EVALUATIONS:]
    line = statistics.linear_regression(range(len(values)), values)
    rest = [value - line.intercept - line.slope * i for i, value in enumerate(values)]
    return math.sqrt(sum(r * r for r in rest) / (len(values) - 2))


def verdict(difference: float, paper_std: float | None, ours: float) -> str:
    """`difference` is ours minus the paper's, in points; `ours` is our noise."""
    theirs = ours if paper_std is None else paper_std
    limit = 2 * math.hypot(max(theirs, _LEAST), max(ours, _LEAST))
    if abs(difference) <= limit:
        return f"{'within noise' if limit <= _MOST else 'unstable'} (±{limit:.2f})"
    return f"{'above' if difference > 0 else 'below'} the paper (noise ±{limit:.2f})"

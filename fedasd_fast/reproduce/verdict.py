"""The verdict on a difference from the paper: within noise, above, below, or unstable."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

_DEFAULT_NOISE = 0.5  # points: root mean square of the standard deviations in tables 2 and 13 of the paper
_MIN_NOISE = 0.2  # points: with three seeds, a smaller standard deviation is itself chance
_MAX_LIMIT = 5.0  # points: a run that scatters more than this has broken down, and any difference would fit
_LAST_EVALUATIONS = 10  # those that the scatter is estimated from
_MIN_EVALUATIONS = 5  # the fewest from which it can be

RULE = (
    "Within noise: the difference is at most 2 sqrt(a^2 + b^2). b is the standard deviation over our seeds; with fewer "
    f"than three seeds, at least the scatter of a run's last {_LAST_EVALUATIONS} evaluations around a straight line "
    f"(an average of few clients varies from round to round), or {_DEFAULT_NOISE} points if there are fewer than "
    f"{_MIN_EVALUATIONS} evaluations. a is the paper's standard deviation, or b if the paper gives none. Both are at "
    f"least {_MIN_NOISE} points. Unstable: within noise, but only because the noise exceeds {_MAX_LIMIT:g} points, "
    "which proves nothing. Not comparable: the number of rounds or other settings differ from the paper's."
)


def standard_deviation(values: Sequence[float]) -> float | None:
    """Over seeds; None for a single one."""
    return statistics.stdev(values) if len(values) > 1 else None


def noise(seeds: Sequence[float], curves: Sequence[Sequence[float]]) -> float:
    """How much another seed might differ: `seeds` are final accuracies, `curves` the evaluations that led to each."""
    between = standard_deviation(seeds)
    if between is not None and len(seeds) > 2:
        return between
    within = [scatter(curve) for curve in curves if len(curve) >= _MIN_EVALUATIONS]
    return max(between or 0.0, statistics.fmean(within) if within else _DEFAULT_NOISE)


def scatter(curve: Sequence[float]) -> float:
    """Standard deviation of the last evaluations from a straight line through them."""
    values = curve[-_LAST_EVALUATIONS:]
    line = statistics.linear_regression(range(len(values)), values)
    rest = [value - line.intercept - line.slope * i for i, value in enumerate(values)]
    return math.sqrt(sum(r * r for r in rest) / (len(values) - 2))


def verdict(difference: float, paper_std: float | None, our_noise: float) -> str:
    """`difference` is ours minus the paper's, in points."""
    paper_noise = our_noise if paper_std is None else paper_std
    limit = 2 * math.hypot(max(paper_noise, _MIN_NOISE), max(our_noise, _MIN_NOISE))
    if abs(difference) <= limit:
        return f"{'within noise' if limit <= _MAX_LIMIT else 'unstable'} (±{limit:.2f})"
    return f"{'above' if difference > 0 else 'below'} the paper (noise ±{limit:.2f})"

"""When two means are the same up to luck."""

from __future__ import annotations

import math

_MISSING = 0.5  # points: root mean square of the deviations that the paper gives in tables 2 and 13
_LEAST = 0.2  # of three seeds, a smaller deviation is luck itself

RULE = (
    "Within noise: the difference is at most 2 sqrt(a^2 + b^2), where a and b are the standard deviations over seeds, "
    f"the paper's and ours, each at least {_LEAST} points. One that is not known (not in the paper, or a single seed "
    f"here) counts as {_MISSING} points, the root mean square of those that the paper gives in tables 2 and 13. Not "
    "comparable: another number of rounds than the paper's, or other settings."
)


def tolerance(deviations: tuple[float | None, float | None]) -> float:
    return 2 * math.hypot(*(_MISSING if deviation is None else max(deviation, _LEAST) for deviation in deviations))


def verdict(difference: float, paper_std: float | None, our_std: float | None) -> str:
    """`difference` is ours minus the paper's, in points."""
    noise = tolerance((paper_std, our_std))
    if abs(difference) <= noise:
        return f"within noise (±{noise:.2f})"
    return f"{'above' if difference > 0 else 'below'} the paper (noise ±{noise:.2f})"

"""Loss scale of float16, whose smallest numbers are so large that small gradients would become 0.

Losses are multiplied by a scale before they are differentiated, gradients divided by it afterwards.  If a gradient has
left the range of float16, that client's step is skipped.  Here the scale is part of the run's state: all clients of a
round train with one, and the server sets the next from how many of their steps were skipped.  So, unlike a scaler in
each worker, it depends neither on the number of workers nor on the order of clients, and a resumed run goes on with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from .errors import SimulationError

_INITIAL = 2.0**12  # 2^16, usual elsewhere, overflows at first; here that would cost a whole round, not a step
_SMALLEST, _LARGEST = 2.0**-10, 2.0**24
_GROWTH_ROUNDS = 20  # without an overflow, after which the scale is doubled
_MANY = 0.1  # of the steps; if more overflowed, halving would take several rounds


@dataclass(frozen=True)
class LossScale:
    """Powers of 2 only: scaling and unscaling are exact."""

    scale: float = _INITIAL
    clean_rounds: int = 0  # since the scale changed

    def after(self, steps: int, skipped: int) -> LossScale:
        """That of the next round, after one in which clients took or skipped so many steps."""
        if skipped:
            lower = self.scale / (16 if skipped > _MANY * steps else 2)
            if lower < _SMALLEST:
                raise SimulationError(
                    f"{skipped} of {steps} local steps overflowed in float16 with the loss scale {self.scale:g}: its "
                    "range does not suffice for this training; use precision = bfloat16, a lower optimizer.lr, or "
                    "optimizer.clip_norm"
                )
            return LossScale(lower)
        if self.clean_rounds + 1 < _GROWTH_ROUNDS:
            return LossScale(self.scale, self.clean_rounds + 1)
        return LossScale(min(2 * self.scale, _LARGEST))

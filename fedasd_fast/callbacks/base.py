"""Base class of callbacks.  Metrics, checkpoints and the configuration are written by the run itself."""

from __future__ import annotations

from typing import Any


class Callback:
    """Does nothing; subclasses override what they need.

    `run` has the configuration (`.config`) and the run directory (`.out`, a path or None); `metrics` is one row of
    metrics.jsonl.
    """

    def on_start(self, run: Any) -> None: ...

    def on_round(self, metrics: dict[str, Any]) -> None: ...

    def on_end(self, result: Any) -> None: ...


def numeric_metrics(metrics: dict[str, Any]) -> dict[str, float]:
    """Every number but the round itself."""
    return {
        key: float(value)
        for key, value in metrics.items()
        if key != "round" and isinstance(value, (int, float)) and not isinstance(value, bool)
    }

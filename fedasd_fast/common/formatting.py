"""Method names, averaged models, numbers and sizes as text."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

_METHOD_LABELS = {"fedavg": "FedAvg", "fedprox": "FedProx", "fedntd": "FedNTD", "feddyn": "FedDyn",
                  "fedsam": "FedSAM", "feddisco": "FedDisco", "fedspeed": "FedSpeed",
                  "scaffold": "SCAFFOLD"}  # fmt: skip
MODEL_DESCRIPTIONS = {
    "cloud": "the model that the server sends",
    "sel": "average of the round's participants",
    "all": "average of all clients' latest models (never sampled: the initial one)",
}


def method_label(method: str) -> str:
    """fedavg+asd as FedAvg+ASD."""
    base, plus, _ = method.partition("+asd")
    return _METHOD_LABELS.get(base, base) + ("+ASD" if plus else "")


def format_number(value: float) -> str:
    """Four significant digits; from a thousand on whole numbers, 12,161 rather than 1.216e+04."""
    return f"{value:,.0f}" if abs(value) >= 999.95 else f"{value:.4g}"


def format_significant(value: float | None, digits: int = 4, missing: str = "undefined") -> str:
    return missing if value is None else f"{value:.{digits}g}"


def format_accuracy(mean: float | None, std: float | None = None) -> str:
    """`93.50`, `93.50 ± 0.31`, or a dash if there is none."""
    return "-" if mean is None else f"{mean:.2f}" + ("" if std is None else f" ± {std:.2f}")


def format_mean(values: Sequence[float | None]) -> str:
    """Mean and standard deviation over seeds as `93.50 ± 0.31`; values that are None do not count."""
    numbers = [value for value in values if value is not None]
    if not numbers:
        return format_accuracy(None)
    return format_accuracy(statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None)


def format_signed(value: float | None) -> str:
    """`+1.25`, or a dash if there is none."""
    return "-" if value is None else f"{value:+.2f}"


def format_bytes(size: float) -> str:
    """`260 B`, `4.9 KB`, `2.0 GB`."""
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def plural(number: int, noun: str) -> str:
    """`1 run`, `3 runs`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"

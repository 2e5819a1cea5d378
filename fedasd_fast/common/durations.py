"""Durations as text, and text as durations."""

from __future__ import annotations

import re

from .schema import ConfigError

_UNIT_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def format_duration(seconds: float) -> str:
    """`0.02 s`, `0.4 s`, `45 s`, `12 min`, `2.5 h`, `3.1 days`."""
    if 0 < seconds < 0.1:
        return f"{seconds:.1g} s"
    if 0 < seconds < 2:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    for unit, size, limit in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172800)):
        if seconds < limit:
            return f"{seconds / size:.{0 if unit != 'h' else 1}f} {unit}"
    return f"{seconds / 86400:.1f} days"


def format_clock(seconds: float) -> str:
    """`1:02:03` or `2:03`, for values that count down."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def parse_duration(text: str, option: str) -> float:
    """`2h`, `90m`, `1h30m`, `45s`, `1.5d` in seconds; `option` is named in the error."""
    parts = re.fullmatch(r"((?:\d+\.?\d*|\.\d+)[dhms])+", text.replace(" ", ""))
    pairs = re.findall(r"(\d+\.?\d*|\.\d+)([dhms])", text) if parts else []
    total = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in pairs)
    if not total:
        raise ConfigError(f"{option} {text}; expected a time with its unit: 45m, 2h, 1h30m, 3d")
    return total

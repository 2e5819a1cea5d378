"""Compact JSON for results: indented objects, each array of plain values on one line, long series in 6 digits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

SERIES_LENGTH = 16  # arrays at least this long are series for plots; shorter ones (top eigenvalues) keep all digits


def dumps(value: Any) -> str:
    """JSON text that ends with a newline.  Its floats are rounded to 6 significant digits in long arrays only."""
    return _text(value, "\n") + "\n"


def _text(value: Any, newline: str) -> str:
    inner = newline + " "
    if isinstance(value, Mapping):
        parts = [f"{json.dumps(str(key))}: {_text(item, inner)}" for key, item in value.items()]
        return "{" + inner + f",{inner}".join(parts) + newline + "}" if parts else "{}"
    if not isinstance(value, (list, tuple)):
        return json.dumps(value)
    if any(isinstance(item, (Mapping, list, tuple)) for item in value):
        return "[" + inner + f",{inner}".join(_text(item, inner) for item in value) + newline + "]"
    return json.dumps([_rounded(item) for item in value] if len(value) >= SERIES_LENGTH else list(value))


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value

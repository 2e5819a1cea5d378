"""Rows of metrics.jsonl and versions.jsonl: values of the wrong type make a line a damaged one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...common import jsonl

_NUMBERS = (
    "acc_",
    "loss",
    "seconds",
    "drift",
    "client_distance",
    "client_updates",
    "samples",
    "client_acc_",
    "client_test_acc_",
    "bytes_",
)  # names begin with
_LONGEST = 1000  # characters of a version


def read_rows(path: Path) -> jsonl.JsonLines:
    return jsonl.read(path, "round", _wrong_metric if path.name == "metrics.jsonl" else _wrong_version)


def _wrong_metric(row: dict[str, Any]) -> str | None:
    for key, value in row.items():
        if key.startswith(_NUMBERS) and value is not None and not _is_number(value):
            return f"`{key}` is not a number"
    failed = row.get("failed", {})
    return None if isinstance(failed, dict) else "`failed` is not an object"


def _wrong_version(row: dict[str, Any]) -> str | None:
    for key, value in row.items():
        if not (value is None or _is_number(value) or (isinstance(value, str) and len(value) <= _LONGEST)):
            return f"`{key[:60]}` is not a version"
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) < 2**63)

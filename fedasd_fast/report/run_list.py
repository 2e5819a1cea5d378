"""A table of the runs in a folder: state, round, accuracy, and the settings in which they differ.

Reads YAML and JSON only, so that `fedasd list` does not wait for torch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common import dotted, jsonl, safe_yaml
from ..common.files import read_bounded
from ..common.formatting import MODEL_DESCRIPTIONS, format_accuracy
from ..common.schema import ConfigError
from ..common.table import Table

_NOT_SHOWN = {"out", "asd.enabled"}  # the first column; the method's name ends in +asd


@dataclass(frozen=True)
class ListedRun:
    path: Path
    settings: Mapping[str, Any]  # config.yaml
    rows: Sequence[Mapping[str, Any]]  # metrics.jsonl
    bad_lines: Sequence[jsonl.BadLine]
    locked: bool  # a process uses the directory

    @property
    def round(self) -> int:
        return int(self.rows[-1]["round"]) if self.rows else 0

    @property
    def state(self) -> str:
        if self.locked:
            return "running"
        planned = self.settings.get("rounds")
        stopped = self.settings.get("stop_at_target") and bool(self.rows) and self.rows[-1].get("reached_target")
        return "finished" if stopped or (isinstance(planned, int) and self.round >= planned) else "interrupted"

    def accuracy(self, model: str) -> float | None:
        """At the last evaluation, in %."""
        found = (row.get(f"acc_{model}") for row in reversed(self.rows))
        return next((float(value) for value in found if isinstance(value, (int, float))), None)


def run_directories(top: Path) -> Iterator[Path]:
    """Folders with a config.yaml, at any depth."""
    for folder, below, files in os.walk(top):
        below.sort()
        if "config.yaml" in files:
            below.clear()  # a run directory has its checkpoints and clients below it, but no other run
            yield Path(folder)


def list_run(folder: Path) -> ListedRun:
    file = folder / "config.yaml"
    if not file.is_file():
        raise ConfigError(f"{folder} is not a run directory: it has no config.yaml")
    settings = safe_yaml.load(read_bounded(file, safe_yaml.MAX_BYTES), str(file))
    if not isinstance(settings, dict):
        raise ConfigError(f"{file} holds no settings; it was cut short, or is not of a run")
    metrics = jsonl.read(folder / "metrics.jsonl", "round")
    return ListedRun(folder, settings, metrics.rows, metrics.bad_lines, _is_locked(folder / "lock"))


def runs_table(runs: Sequence[ListedRun], top: Path) -> Table:
    """A row for each run, named by its path below `top`."""
    models = [model for model in MODEL_DESCRIPTIONS if any(run.accuracy(model) is not None for run in runs)]
    keys = differing_settings([run.settings for run in runs])
    rows = [
        [
            str(run.path.relative_to(top)) if run.path != top else str(top),
            run.state,
            f"{run.round} of {run.settings.get('rounds', '?')}",
            *(format_accuracy(run.accuracy(model)) for model in models),
            *(_text(dotted.lookup(run.settings, key)) for key in keys),
        ]
        for run in runs
    ]
    return Table(["run", "state", "round", *(f"acc {model}" for model in models), *keys], rows)


def differing_settings(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Dotted names.  A setting that an older version did not have yet differs from nothing."""
    keys = dict.fromkeys(key for one in settings for key, _ in dotted.flatten(one))
    return [key for key in keys if key not in _NOT_SHOWN and len(_values(settings, key)) > 1]


def _values(settings: Sequence[Mapping[str, Any]], key: str) -> set[str]:
    group = key.partition(".")[0]
    return {_text(dotted.lookup(one, key)) for one in settings if group in one}


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, default=str)


def _is_locked(path: Path) -> bool:
    """Whether a process runs in the directory: it holds the lock for as long as it lives."""
    try:
        import fcntl

        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):  # a system without such locks; a folder that was copied without it
        return False
    return False

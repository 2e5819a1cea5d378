"""Finds runs in folders, at any depth."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from .. import presets
from ..common.schema import ConfigError
from ..simulation.storage.recorded_run import RecordedRun, read_run
from .run_list import run_directories


@dataclass(frozen=True)
class UnreadableFolder:
    """A folder that cannot be shown, and why."""

    path: Path
    why: str

    def __str__(self) -> str:
        return self.why if str(self.path) in self.why else f"{self.path}: {self.why}"


def find_runs(folders: Iterable[str | Path]) -> tuple[list[RecordedRun], list[UnreadableFolder]]:
    """The runs in these folders, at any depth, each once; and the folders that cannot be shown."""
    runs: list[RecordedRun] = []
    unreadable: list[UnreadableFolder] = []
    seen: set[Path] = set()
    for top in map(Path, folders):
        if not top.is_dir():
            unreadable.append(UnreadableFolder(top, "there is no such folder"))
            continue
        found = list(run_directories(top))
        if not found:
            unreadable.append(UnreadableFolder(top, "no run in this folder or below it (no config.yaml)"))
        for folder in found:
            if folder.resolve() in seen:
                continue
            seen.add(folder.resolve())
            try:
                runs.append(read_run(folder))
            except (ConfigError, OSError, ValueError, yaml.YAMLError) as error:
                unreadable.append(UnreadableFolder(folder, " ".join(str(error).split())))  # YAML errors have newlines
    return runs, unreadable


def without_repeats(runs: Iterable[RecordedRun]) -> tuple[list[RecordedRun], list[str]]:
    """Of runs with the same settings and seed (a copied folder, a run done again) the one that got furthest: counted
    as two seeds they would fake certainty.  And what to tell about the others."""
    kept: dict[str, RecordedRun] = {}
    notes = []
    for run in runs:
        key = json.dumps(presets.essential_settings(run.config), sort_keys=True)
        other = kept.setdefault(key, run)
        if other is not run:
            kept[key], left_out = (run, other) if run.rounds > other.rounds else (other, run)
            notes.append(f"{left_out.out} has the settings and the seed of {kept[key].out}; it counts once")
    return list(kept.values()), notes

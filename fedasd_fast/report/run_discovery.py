"""Finds runs in folders, at any depth."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from ..common.schema import ConfigError
from ..simulation.storage.recorded_run import RecordedRun, read_run


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
        found = list(_run_directories(top))
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


def _run_directories(top: Path) -> Iterator[Path]:
    for folder, below, files in os.walk(top):
        below.sort()
        if "config.yaml" in files:
            below.clear()  # a run directory has its checkpoints and clients below it, but no other run
            yield Path(folder)

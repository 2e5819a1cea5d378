"""Which datasets are known, and which of them are present on this machine."""

from __future__ import annotations

import importlib.util
import shlex
from dataclasses import dataclass
from pathlib import Path

from .archives import open_files
from .catalogue import CATALOGUE, find_entry
from .directory import DatasetNotFound, data_directory


@dataclass(frozen=True)
class Status:
    """Whether a dataset is present, where and how large it is, what it lacks, and how to obtain it."""

    name: str
    description: str
    licence: str
    present: bool
    where: Path | None  # None: absent, or not read from a file
    size: int  # bytes on disk
    how: str  # how to obtain it: a command, or advice
    lacks: tuple[str, ...] = ()  # what there is too little of; it is not present then
    part: str = ""  # `20 of 200 classes`, if it is a part of the published one


def status(name: str, data_dir: str | Path | None = None) -> Status:
    """Of one dataset, looked for in `data_dir` or the default directory."""
    entry, folder = find_entry(name), data_directory(data_dir)
    where: Path | None = None
    size, lacks, part = 0, tuple[str, ...](), ""
    if entry.read is None:
        present = name != "digits" or importlib.util.find_spec("sklearn") is not None
    elif name == "text":
        present = importlib.util.find_spec("sklearn") is not None
    else:
        try:
            where = entry.find(folder)
        except DatasetNotFound:
            present = False
        else:
            lacks, part = tuple(entry.missing(where)), entry.part(where)
            present, size = not lacks, open_files(where).nbytes
    how = f"fedasd data get {name} --data-dir {shlex.quote(str(folder))}" if entry.downloads else entry.advice
    return Status(name, entry.description, entry.licence, present, where, size, how, lacks, part)


def list_datasets(data_dir: str | Path | None = None) -> list[Status]:
    """The status of every dataset of the catalogue."""
    return [status(name, data_dir) for name in CATALOGUE]

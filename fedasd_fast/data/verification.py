"""Verification of a dataset: every file is read, and compared with its published checksum where there is one.

The cache is neither used nor written: it would hide that a file was damaged since.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..common.schema import ConfigError
from .archives import Files, open_files
from .catalogue import DatasetEntry, find_entry
from .digits import read_digits
from .directory import data_directory
from .reader import Array, DataError, DecodeContext, DecodedArrays
from .text import included_text, read_text

Report = Callable[[str, int, int | None], None]  # what is being done, how much of it, of how much


@dataclass(frozen=True)
class Verified:
    name: str
    train: int  # samples
    test: int
    num_classes: int
    shape: tuple[int, ...]  # of a sample
    checksums: int  # files that equal the published ones; the others have been read and decoded
    notices: tuple[str, ...]


def verify(name: str, data_dir: str | Path | None = None, progress: Report = lambda *_: None) -> Verified:
    """A damaged, incomplete or changed file is a DataError that names it."""
    entry, folder = find_entry(name), data_directory(data_dir)
    if name == "digits":
        return _verified(entry, read_digits(), 0)
    if entry.read is None:
        raise ConfigError(f"{name} has no files to check. {entry.advice}")
    if name == "text":
        return _verified(entry, read_text(included_text(), entry.options(), DecodeContext()), 0)
    where = entry.find(folder)
    if lacks := entry.missing(where):
        raise DataError(f"{name} is incomplete: {where} lacks {', '.join(lacks)}; {_remedy(entry)}")
    files = open_files(where)
    checksums = _compare(entry, files, progress)

    def report(done: int, total: int) -> None:
        progress(f"{name}: reading", done, total)

    return _verified(entry, entry.read(files, entry.options(), DecodeContext(_scratch, report)), checksums)


def _compare(entry: DatasetEntry, files: Files, progress: Report) -> int:
    """The number of files that have a published checksum."""
    compared = {file: entry.checksums[key] for file in files.stat if (key := Path(file).name) in entry.checksums}
    for number, (file, published) in enumerate(compared.items()):
        progress(f"{entry.name}: checksums", number, len(compared))
        path = files.path if files.path.is_file() else files.path / file
        found = file_md5(path)
        if found != published:
            raise DataError(
                f"{path} has md5 {found}, the published file {published}: it is damaged, or not the original; "
                f"{_remedy(entry)}"
            )
    return len(compared)


def file_md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)  # as published; it protects against accidents only
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _verified(entry: DatasetEntry, arrays: DecodedArrays, checksums: int) -> Verified:
    shape, notices = tuple(arrays.train_x.shape[1:]), tuple(entry.notices(arrays))
    return Verified(entry.name, len(arrays.train_y), len(arrays.test_y), arrays.num_classes, shape, checksums, notices)


def _scratch(name: str, shape: tuple[int, ...]) -> Array:
    """In a file without a name, since decoded images may be larger than memory."""
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, np.uint8, "w+", shape=shape)


def _remedy(entry: DatasetEntry) -> str:
    return f"remove it and run `fedasd data get {entry.name}`" if entry.downloads else entry.advice

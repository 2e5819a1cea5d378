"""Read-only access to the files of a directory, tar or zip archive by name.

Archives are never unpacked to disk, so no name inside one can point outside.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import IO, cast

from ..common.files import read_bounded
from .reader import DataError

MAX_TAR_BYTES = 2 << 30  # unpacked; a published CIFAR archive has 0.2e9
MAX_FILE_BYTES = 2 << 30  # of one file, unpacked


class Files:
    """The files of a directory, recursively, without hidden ones; names are relative, with slashes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def stat(self) -> dict[str, tuple[int, int]]:
        """Name -> (bytes, modification time in ns), sorted by name."""
        found: dict[str, tuple[int, int]] = {}
        seen: set[tuple[int, int]] = set()  # directories; symbolic links may form a cycle

        def walk(folder: str, prefix: str) -> None:
            info = os.stat(folder)
            if (info.st_dev, info.st_ino) in seen:
                return
            seen.add((info.st_dev, info.st_ino))
            for entry in os.scandir(folder):
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    walk(entry.path, f"{prefix}{entry.name}/")
                elif entry.is_file():
                    found[prefix + entry.name] = (entry.stat().st_size, entry.stat().st_mtime_ns)

        try:
            walk(str(self.path), "")
        except OSError as error:
            raise DataError(f"{self.path} cannot be listed: {error}") from None
        return dict(sorted(found.items()))

    @property
    def names(self) -> Collection[str]:
        return self.stat

    @property
    def nbytes(self) -> int:
        return sum(size for size, _ in self.stat.values())

    def where(self, name: str) -> str:
        """The path of the file, for messages."""
        return str(self.path / name)

    def read(self, name: str) -> bytes:
        try:
            return self._read(name)
        except (FileNotFoundError, KeyError):
            raise DataError(f"{self.where(name)} is missing; {self.path} is incomplete") from None
        except (OSError, EOFError, RuntimeError, NotImplementedError, zlib.error, zipfile.BadZipFile) as error:
            raise DataError(f"{self.where(name)} cannot be read: {error}") from None

    def _read(self, name: str) -> bytes:
        if name not in self.names:  # a name from inside a file of the dataset may lead anywhere
            raise KeyError(name)
        return read_bounded(self.path / name, MAX_FILE_BYTES)


class SingleFile(Files):
    @cached_property
    def stat(self) -> dict[str, tuple[int, int]]:
        info = self.path.stat()
        return {self.path.name: (info.st_size, info.st_mtime_ns)}

    def where(self, name: str) -> str:
        return str(self.path)

    def _read(self, name: str) -> bytes:
        return read_bounded(self.path, MAX_FILE_BYTES)


class Archive(SingleFile, ABC):
    """`stat` describes the archive itself; a single top-level directory is left out of the names."""

    @property
    def names(self) -> Collection[str]:
        return self._members

    @cached_property
    def _members(self) -> dict[str, str]:
        """Name -> name in the archive."""
        full = [name for name in self._list() if not name.startswith("__MACOSX/")]
        clean = [name.removeprefix("./") for name in full]
        tops = {name.split("/", 1)[0] for name in clean}
        if len(tops) == 1 and all("/" in name for name in clean):
            clean = [name.split("/", 1)[1] for name in clean]
        return dict(sorted(zip(clean, full, strict=True)))

    def where(self, name: str) -> str:
        return f"{self.path}: {name}"

    @abstractmethod
    def _list(self) -> list[str]:
        """Names in the archive."""

    def _damaged(self, error: Exception) -> DataError:
        return DataError(f"{self.path} is damaged or incomplete ({error}); delete it and download it again")


class Tar(Archive):
    """Unpacked into memory as a whole: a compressed tar file has no random access."""

    @cached_property
    def _content(self) -> tuple[memoryview, dict[str, slice]]:
        try:
            with open(self.path, "rb") as raw:
                packed = raw.read(2) == b"\x1f\x8b"
            opener = gzip.open if packed else open
            with cast(IO[bytes], opener(self.path, "rb")) as stream:
                content = self._read_all(stream)
            with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
                slices = {m.name: slice(m.offset_data, m.offset_data + m.size) for m in tar if m.isreg()}
        except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
            raise self._damaged(error) from None
        return memoryview(content), slices

    def _read_all(self, stream: IO[bytes]) -> bytes:
        blocks, total = [], 0
        while block := stream.read(1 << 24):  # to the end, where the checksum of gzip is
            blocks.append(block)
            total += len(block)
            if total > MAX_TAR_BYTES:
                raise DataError(
                    f"{self.path} unpacks to more than {MAX_TAR_BYTES:,} bytes; it is not the published one"
                )
        return b"".join(blocks)

    def _list(self) -> list[str]:
        return list(self._content[1])

    def _read(self, name: str) -> bytes:
        content, slices = self._content
        return bytes(content[slices[self._members[name]]])


class Zip(Archive):
    @cached_property
    def _zip(self) -> zipfile.ZipFile:  # safe to read from several threads
        try:
            return zipfile.ZipFile(self.path)
        except (OSError, zipfile.BadZipFile) as error:
            raise self._damaged(error) from None

    def _list(self) -> list[str]:
        return [info.filename for info in self._zip.infolist() if not info.is_dir()]

    def _read(self, name: str) -> bytes:
        info = self._zip.getinfo(self._members[name])
        if info.file_size > MAX_FILE_BYTES:  # no more than this is unpacked, whatever follows
            raise OSError(f"it unpacks to {info.file_size:,} bytes; at most {MAX_FILE_BYTES:,} are read")
        return self._zip.read(info)


def open_files(path: Path) -> Files:
    if path.is_dir():
        return Files(path)
    if path.name.endswith((".tar.gz", ".tgz", ".tar")):
        return Tar(path)
    return Zip(path) if path.suffix == ".zip" else SingleFile(path)

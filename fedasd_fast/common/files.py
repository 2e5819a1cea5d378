"""Files written whole or not at all, and never through a link; files read up to a size.

A folder may have come from somebody else: a symbolic link in it must not lead a write to a file elsewhere, and a pipe,
a device or an endless file in place of a small one must not hang the reader or fill the memory.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import IO, Any

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)  # systems without it have no such links either
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # to open a pipe without a writer


class UnsuitableFile(OSError):
    """Not a regular file, or larger than it can be."""

    def __str__(self) -> str:
        return f"{self.filename} {self.strerror}"


def open_no_follow(path: Path, mode: str, **options: Any) -> IO[Any]:
    """`open`, but a symbolic link is an error, and so is anything else that is no regular file."""

    def opener(name: str, flags: int) -> int:
        try:
            descriptor = os.open(name, flags | _NO_FOLLOW | _NO_WAIT, 0o666)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise UnsuitableFile(error.errno, "is a symbolic link, which is not followed", str(path)) from None
            raise
        return _regular(descriptor, path)

    return open(path, mode, opener=opener, **options)


def create_file(path: Path) -> IO[bytes]:
    """A new file, open for writing; what had that name before, a link too, is removed."""
    path.unlink(missing_ok=True)
    return open_no_follow(path, "xb")


def read_bounded(path: Path, limit: int) -> bytes:
    """The content of a regular file (or of one that a link leads to) of at most `limit` bytes."""
    with open(path, "rb", opener=lambda name, flags: _regular(os.open(name, flags | _NO_WAIT), path)) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise UnsuitableFile(errno.EFBIG, f"has {size:,} bytes; such a file has at most {limit:,}", str(path))
        return file.read(size)


def write_atomically(path: Path, data: bytes | memoryview) -> None:
    """The file is either as before or complete, even if power fails: temporary file, fsync, rename, fsync."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with create_file(temporary) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _regular(descriptor: int, path: Path) -> int:
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise UnsuitableFile(errno.EINVAL, "is not a regular file", str(path))


def identity(path: Path) -> tuple[int, int] | None:
    """Of the file or directory at this path, another one for another file; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino

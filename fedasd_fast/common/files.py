"""Atomic file writes, and whether a path still leads to the same file."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, data: bytes | memoryview) -> None:
    """The file is either as before or complete, even if power fails: temporary file, fsync, rename, fsync."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def identity(path: Path) -> tuple[int, int] | None:
    """Of the file or directory at this path, another one for another file; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino

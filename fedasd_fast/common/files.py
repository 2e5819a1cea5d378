"""Atomic file writes."""

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

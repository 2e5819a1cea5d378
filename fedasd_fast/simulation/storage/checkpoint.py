"""Checkpoints: written whole or not at all, verified when read, the last two kept.

A checkpoint's name carries a part of its SHA-256, so that one atomic rename makes both the file and the proof that it
is complete.  Files hold tensors, numbers and texts only and are read with weights_only: no code runs from them.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ...common.files import read_bounded, write_atomically
from ..errors import SimulationError
from .checkpoint_format import WrongFormat, check_archive, check_content

_log = logging.getLogger(__name__)
_NAME = re.compile(r"round-(\d{7})-([0-9a-f]{16})\.pt")


def save(directory: Path, round: int, content: Mapping[str, Any]) -> None:
    buffer = io.BytesIO()
    torch.save(dict(content), buffer)
    data = buffer.getbuffer()
    name = f"round-{round:07d}-{hashlib.sha256(data).hexdigest()[:16]}.pt"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_atomically(directory / name, data)
    except OSError as error:
        raise SimulationError(
            f"cannot write the checkpoint {directory / name} ({len(data):,} bytes): {error.strerror}; earlier ones are "
            f"unharmed: free some space, then `fedasd resume {shlex.quote(str(directory.parent))}`"
        ) from error
    # Beside this one stays the one before it.  One of the same round or of a later one is damaged: the run fell back
    # from it.  Temporary files were left by a process that was killed.
    before = [path for number, path in _listed(directory) if number < round]
    for path in {*directory.glob("round-*.pt*")} - {directory / name, *before[:1]}:
        if path.is_symlink() or not path.is_dir():  # a folder with such a name is not ours
            path.unlink(missing_ok=True)


def load(directory: Path) -> list[dict[str, Any]]:
    """The content of every checkpoint that is whole, newest first; others are named in the log and passed over."""
    contents = []
    listed = _listed(directory)
    for _, path in listed:
        try:
            contents.append(_read(path))
        except (OSError, WrongFormat) as error:
            _log.warning("the checkpoint %s cannot be used: %s; falling back to the one before", path, error)
    if listed and not contents:
        raise SimulationError(
            f"none of the {len(listed)} checkpoints in {directory} can be read, they are damaged; remove that folder "
            "to run from the first round again (with the same result), or restore it"
        )
    return contents


def _read(path: Path) -> dict[str, Any]:
    match = _NAME.fullmatch(path.name)
    assert match is not None
    data = read_bounded(path, _physical_memory())
    if hashlib.sha256(data).hexdigest()[:16] != match[2]:
        raise WrongFormat("its checksum does not match")
    file = io.BytesIO(data)
    check_archive(file)
    try:
        content: dict[str, Any] = torch.load(file, weights_only=True, map_location="cpu")
    except Exception as error:  # a forged file can fail in any way
        raise WrongFormat(f"it holds more than tensors, numbers and texts ({type(error).__name__})") from None
    check_content(content, int(match[1]))
    return content


def _physical_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _listed(directory: Path) -> list[tuple[int, Path]]:
    found = [(int(match[1]), path) for path in directory.glob("round-*.pt") if (match := _NAME.fullmatch(path.name))]
    return sorted(found, reverse=True)

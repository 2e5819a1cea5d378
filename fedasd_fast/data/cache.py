"""Cache of decoded datasets: memory-mapped .npy files and a JSON header in one directory.

A cache lives in `<data_dir>/.fedasd-cache/<dataset>-<key>`, or, where that cannot be written, in `fedasd_fast` of the
user's cache directory (XDG_CACHE_HOME, or ~/.cache); the key is a digest of the source's path and the options.  It is
written under a temporary name and renamed when complete, so any number of processes may build it at the same time.

When it is opened, the format version, the names, sizes and modification times of the source files, and the shapes and
sizes of the arrays are compared with the header.  Checksums (SHA-256, about 0.1 s for CIFAR) are verified once in each
process; for caches above `ALWAYS_CHECKED_BYTES` only if a file was modified after it was written.  A cache that does
not match is built again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .archives import Files
from .cache_header import check_arrays, read_header
from .reader import Array, DecodeContext, DecodedArrays, Progress

FORMAT_VERSION = 1
ALWAYS_CHECKED_BYTES = 1 << 30
ABANDONED_SECONDS = 24 * 3600  # after which an unfinished cache is assumed to belong to no running process
CACHE_DIRECTORY = ".fedasd-cache"
Build = Callable[[DecodeContext], DecodedArrays]

logger = logging.getLogger(__name__)
_checked: set[tuple[int, int, int, int]] = set()  # files whose checksum this process has verified


def cached(
    name: str,
    files: Files,
    options: Mapping[str, Any],
    data_dir: Path,
    build: Build,
    progress: Progress | None = None,
) -> DecodedArrays:
    """What `build` returns, from the cache if there is one, else built into it.  Writes to the arrays stay in this
    process."""
    signature = _digest([[key, *value] for key, value in files.stat.items()])
    folders = locations(name, files.path, options, data_dir)
    for folder in folders:
        if (folder / "header.json").exists():
            try:
                return _open(folder, signature)
            except (OSError, ValueError, KeyError, EOFError, RecursionError) as error:
                logger.warning("rebuilding the cache %s: %s", folder, error)
    for folder in folders:
        try:
            return _write(folder, name, signature, build, progress)
        except OSError as error:
            logger.warning("cannot write a cache to %s: %s", folder, error)
    logger.warning("%s is decoded into memory and not cached", name)
    return build(DecodeContext(progress=progress))


def locations(name: str, source: Path, options: Mapping[str, Any], data_dir: Path) -> list[Path]:
    """Where a cache may be, best first.  The key of the first does not change when the data directory is moved."""
    source, data_dir = source.resolve(), data_dir.resolve()
    beside = str(source.relative_to(data_dir)) if source.is_relative_to(data_dir) else str(source)
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedasd_fast"
    return [
        data_dir / CACHE_DIRECTORY / f"{name}-{_digest([beside, dict(options)])[:12]}",
        home / f"{name}-{_digest([str(source), dict(options)])[:12]}",
    ]


def _open(folder: Path, signature: str) -> DecodedArrays:
    header = read_header(folder / "header.json", FORMAT_VERSION)
    if header["signature"] != signature:
        raise ValueError("the source files have changed")
    entries: dict[str, dict[str, Any]] = header["arrays"]
    thorough = sum(entry["bytes"] for entry in entries.values()) <= ALWAYS_CHECKED_BYTES
    arrays = {name: _open_array(folder / f"{name}.npy", entry, thorough) for name, entry in entries.items()}
    check_arrays(arrays, header["num_classes"])
    mean, std = (tuple(header[key]) if header[key] is not None else None for key in ("mean", "std"))
    return DecodedArrays(
        **arrays, num_classes=header["num_classes"], mean=mean, std=std, notices=tuple(header["notices"])
    )


def _open_array(path: Path, entry: Mapping[str, Any], thorough: bool) -> Array:
    info = path.stat()
    if not stat.S_ISREG(info.st_mode):
        raise ValueError(f"{path.name} is not a regular file")
    if info.st_size != entry["bytes"]:
        raise ValueError(f"{path.name} has {info.st_size} bytes, its header says {entry['bytes']}")
    identity = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)
    if identity not in _checked and (thorough or info.st_mtime_ns != entry["time"]):
        if _checksum(path) != entry["sha256"]:
            raise ValueError(f"{path.name} does not match the checksum in its header")
        _checked.add(identity)
    # Copy on write: torch needs writable arrays, and no write ever reaches the file.
    array: Array = np.load(path, mmap_mode="c", allow_pickle=False)
    if list(array.shape) != entry["shape"] or array.dtype.str != entry["dtype"]:
        raise ValueError(f"{path.name} is {array.dtype.str} {list(array.shape)}, which differs from its header")
    return array


def _write(folder: Path, name: str, signature: str, build: Build, progress: Progress | None) -> DecodedArrays:
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(folder.parent)
    unfinished = folder.parent / f".new-{secrets.token_hex(8)}"
    unfinished.mkdir()
    try:
        allocated: dict[str, np.memmap[Any, Any]] = {}

        def allocate(key: str, shape: tuple[int, ...]) -> Array:
            allocated[key] = _new_file(unfinished / f"{key}.npy", shape)
            return allocated[key]

        arrays = build(DecodeContext(allocate, progress))
        entries = {}
        for key, array in arrays.named().items():
            path = unfinished / f"{key}.npy"
            if array is allocated.get(key):
                allocated[key].flush()
            else:
                np.save(path, array, allow_pickle=False)
            info = path.stat()
            entries[key] = dict(
                dtype=array.dtype.str,
                shape=list(array.shape),
                bytes=info.st_size,
                time=info.st_mtime_ns,
                sha256=_checksum(path),
            )
        header = dict(
            format=FORMAT_VERSION,
            dataset=name,
            signature=signature,
            num_classes=arrays.num_classes,
            mean=arrays.mean,
            std=arrays.std,
            notices=arrays.notices,
            arrays=entries,
        )
        (unfinished / "header.json").write_text(json.dumps(header, indent=1))
        mapped = _open(
            unfinished, signature
        )  # before another process can replace it; a mapping survives renaming and removal
        _publish(unfinished, folder)
        return mapped
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _new_file(path: Path, shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    array: np.memmap[Any, Any] = np.lib.format.open_memmap(path, "w+", np.dtype(np.uint8), shape)
    if hasattr(os, "posix_fallocate"):  # a full disk raises here; in the mapping it would kill the process
        with open(path, "r+b") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # file systems without this call
                    raise
    return array


def _publish(unfinished: Path, folder: Path) -> None:
    """Puts the new directory in place of an old one, if any.  Processes that have mapped the old files keep them."""
    for _ in range(100):  # other processes may be doing the same
        try:
            os.rename(unfinished, folder)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        old = folder.parent / f".old-{secrets.token_hex(8)}"
        with contextlib.suppress(FileNotFoundError):
            os.rename(folder, old)
        shutil.rmtree(old, ignore_errors=True)
    raise OSError(f"{folder} cannot be replaced")


def _remove_abandoned(parent: Path) -> None:
    for path in (*parent.glob(".new-*"), *parent.glob(".old-*")):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > ABANDONED_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


def _checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()

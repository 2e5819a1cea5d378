"""The memory-mapped files that hold client records: fixed numbers of slots, in a directory, in shared memory, or in the
memory of this process alone.

A slot is a row [names, P].  Rows of many slots are read and written in one go, file by file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ...common.files import create_file, identity, open_no_follow
from ..errors import SimulationError, directory_gone
from ..system.shared_memory import SharedMemory, whole_pages

_CHUNK_BYTES = 16 * 2**20


class RecordChunks:
    def __init__(
        self, vectors: int, size: int, dtype: torch.dtype, directory: Path | None, memory: SharedMemory | None
    ) -> None:
        """For records of so many vectors [size]."""
        self.directory, self.memory = directory, memory
        self._dtype = np.dtype(str(dtype).removeprefix("torch."))
        self.record_bytes = max(1, vectors) * size * self._dtype.itemsize
        self.slots_each = max(1, _CHUNK_BYTES // self.record_bytes)
        self._shape = self.slots_each, vectors, size
        self._chunks: list[np.ndarray] = []
        self._made: tuple[int, int] | None = None  # identity of the directory, once it is used

    def __len__(self) -> int:
        return len(self._chunks)

    @property
    def slots(self) -> int:
        return len(self._chunks) * self.slots_each

    def row(self, slot: int) -> np.ndarray:
        """[names, P]."""
        number, place = divmod(slot, self.slots_each)
        self._map_up_to(number)
        row: np.ndarray = self._chunks[number][place]
        return row

    def read(self, slots: NDArray[np.int64], vector: int, out: np.ndarray) -> None:
        """out [n, P] becomes one of the vectors in each of the slots."""
        for chunk, here, places in self._by_chunk(slots):
            if len(places) == len(slots):
                np.take(chunk[:, vector], places, axis=0, out=out, mode="clip")  # "raise" would make a copy
            else:
                out[here] = chunk[places, vector]

    def write(self, slots: NDArray[np.int64], vector: int, values: np.ndarray) -> None:
        """One of the vectors in each of the slots becomes values [n, P]."""
        for chunk, here, places in self._by_chunk(slots):
            chunk[places, vector] = values if len(places) == len(slots) else values[here]

    def add(self) -> None:
        """One more file, at the end."""
        self._chunks.append(self._new(len(self._chunks)))

    def open(self) -> None:
        """All files that are in the directory."""
        self._chunks = []
        size = self.slots_each * self.record_bytes
        while self.directory is not None and (path := self._path(len(self._chunks))).exists():
            if path.stat().st_size != size:
                break  # was being made when the process died; made anew when needed
            self._chunks.append(self._mapped(len(self._chunks)))

    def flush(self) -> None:
        """Returns when everything is on disk."""
        for chunk in self._chunks:
            if isinstance(chunk, np.memmap):
                chunk.flush()

    def place(self, slot: int) -> tuple[object, int]:
        """The file of a slot, and where in it the slot begins."""
        number, place = divmod(slot, self.slots_each)
        chunk = self._chunks[number]
        assert isinstance(chunk, np.memmap)
        return chunk.filename, place * self.record_bytes

    def make_directory(self) -> None:
        """In the run directory.  It is not made a second time, and another one in its place is left alone."""
        if self.directory is None:
            return
        if self._made is None:
            with contextlib.suppress(FileNotFoundError):
                self.directory.mkdir(exist_ok=True)
            self._made = identity(self.directory)
        if self._made is None or self._made != identity(self.directory):
            raise directory_gone(self.directory)

    def _by_chunk(self, slots: NDArray[np.int64]) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Every file that has some of the slots: which of them, and where in the file."""
        numbers, places = np.divmod(slots, self.slots_each)
        for number in np.unique(numbers):
            self._map_up_to(int(number))
            here = numbers == number
            yield self._chunks[number], here, places[here]

    def _map_up_to(self, number: int) -> None:
        while number >= len(self._chunks):  # another process has made more since
            self._chunks.append(self._mapped(len(self._chunks)))

    def _new(self, number: int) -> np.ndarray:
        if self.memory is not None:
            self.memory.grow((number + 1) * self._stride)
            return self._mapped(number)
        if self.directory is None:
            return np.zeros(self._shape, self._dtype)  # pages are taken when first written
        path, size = self._path(number), self.slots_each * self.record_bytes
        try:
            self.make_directory()
            with create_file(path) as file:
                # Space is reserved now: a write to a mapped page that finds the disk full would kill the process.
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, size)
                else:  # macOS
                    file.write(bytes(size))
        except OSError as error:
            path.unlink(missing_ok=True)
            raise SimulationError(
                f"no room for client state: {path} needs {size:,} bytes ({error.strerror}); free some space and "
                "resume, or start again without `all` in eval_models"
            ) from error
        return self._mapped(number)

    def _mapped(self, number: int) -> np.ndarray:
        """A chunk that exists, in a file or in shared memory."""
        if self.memory is None:
            try:
                with open_no_follow(self._path(number), "r+b") as file:
                    return np.memmap(file, self._dtype, "r+", shape=self._shape)
            except FileNotFoundError:
                raise directory_gone(self._path(number)) from None
        memory = self.memory.map(number * self._stride, self._stride)
        return np.ndarray(self._shape, self._dtype, memory)

    @property
    def _stride(self) -> int:
        return whole_pages(self.slots_each * self.record_bytes)

    def _path(self, number: int) -> Path:
        assert self.directory is not None
        return self.directory / f"chunk-{number:05d}.bin"

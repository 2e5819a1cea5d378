"""Memory that several processes see: a file without a name, which is gone with the last process that has it open.

So nothing is left behind, whatever ends a run.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
from collections.abc import Callable
from multiprocessing import reduction
from typing import Any

import numpy as np
import torch
from torch import Tensor

_LARGE = 2**20  # bytes


class SharedMemory:
    """Can be given to a process that is being started; both then see the same bytes."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = _anonymous_file() if descriptor is None else descriptor

    def __reduce__(self) -> tuple[Callable[[Any], SharedMemory], tuple[Any]]:
        return _received, (reduction.DupFd(self._descriptor),)

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):  # else there was none to be had
            os.close(self._descriptor)

    def grow(self, size: int) -> None:
        """Pages are taken when first written."""
        if os.fstat(self._descriptor).st_size < size:
            os.ftruncate(self._descriptor, size)

    def map(self, offset: int, size: int, private: bool = False) -> mmap.mmap:
        """From an offset in whole pages on.  What is written to a private one, others do not see."""
        return mmap.mmap(self._descriptor, size, mmap.MAP_PRIVATE if private else mmap.MAP_SHARED, offset=offset)


def dumps(value: Any, file: SharedMemory) -> bytes:
    """The value, pickled; large tensors go to the file, where all who load it see one copy."""
    buffer = io.BytesIO()
    _Pickler(buffer, file).dump(value)
    return buffer.getvalue()


def loads(data: bytes, file: SharedMemory) -> Any:
    return _Unpickler(io.BytesIO(data), file).load()


class _Pickler(pickle.Pickler):
    def __init__(self, buffer: io.BytesIO, file: SharedMemory) -> None:
        super().__init__(buffer)
        self._file, self._end = file, 0
        self._known: dict[int, tuple[int, torch.dtype, torch.Size]] = {}

    def persistent_id(self, value: Any) -> tuple[int, torch.dtype, torch.Size] | None:
        if type(value) is not Tensor or value.device.type != "cpu" or value.layout != torch.strided:
            return None
        if value.nbytes < _LARGE or value.requires_grad:
            return None
        if id(value) not in self._known:
            size = whole_pages(value.nbytes)
            self._file.grow(self._end + size)
            _tensor(self._file.map(self._end, size), value.dtype, value.shape).copy_(value)
            self._known[id(value)] = self._end, value.dtype, value.shape
            self._end += size
        return self._known[id(value)]


class _Unpickler(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, file: SharedMemory) -> None:
        super().__init__(buffer)
        self._file = file

    def persistent_load(self, place: tuple[int, torch.dtype, torch.Size]) -> Tensor:
        start, dtype, shape = place
        return _tensor(self._file.map(start, whole_pages(shape.numel() * dtype.itemsize), private=True), dtype, shape)


def _tensor(memory: mmap.mmap, dtype: torch.dtype, shape: torch.Size) -> Tensor:
    return torch.frombuffer(memory, dtype=dtype, count=shape.numel()).view(shape)


def whole_pages(size: int) -> int:
    """The size in whole pages."""
    return -(-size // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("fedasd")
    with tempfile.TemporaryFile() as file:  # macOS
        return os.dup(file.fileno())


def _received(copy: Any) -> SharedMemory:
    return SharedMemory(copy.detach())


class SharedBuffers:
    """What the parent and its workers show each other: vectors, and who is at work on which client.

    Every worker has sums of its own; what one shows is read by the parent only when it has said that it is done.
    """

    def __init__(
        self,
        size: int,
        dtype: torch.dtype,
        states: tuple[str, ...],
        sums: int,
        workers: int,
        file: SharedMemory | None = None,
    ) -> None:
        self._arguments = (size, dtype, states, sums, workers)
        self._file, self._end = file or SharedMemory(), 0
        self.current = self._place((workers,), torch.int64)  # the client that each worker trains, -1: none
        self.initial = self._place((size,), dtype)
        self.model = self._place((size,), dtype)
        self.state = {name: self._place((size,), torch.float64) for name in states}
        self.evaluated = self._place((3, size), dtype)
        self.sums = [self._place((sums, size), torch.int64) for _ in range(workers)]

    def __reduce__(self) -> tuple[type[SharedBuffers], tuple[Any, ...]]:
        return SharedBuffers, (*self._arguments, self._file)

    def _place(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        size = whole_pages(int(np.prod(shape)) * dtype.itemsize)
        self._file.grow(self._end + size)
        memory = self._file.map(self._end, size)
        self._end += size
        return _tensor(memory, dtype, torch.Size(shape))

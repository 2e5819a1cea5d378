"""What clients keep from round to round, in memory-mapped files; a client costs nothing before its first write.

A client's record is a row [names, P] in a slot.  Writing takes a fresh slot and never touches the old one, which stays
as it is until two checkpoints have been written after it was replaced: so a run that is killed at any moment finds
every record of its last checkpoint, and of the one before, unharmed.  `rollback` returns to the last `mark` likewise.

Records of a checkpoint have checksums, which are verified when a record of a restored checkpoint is first read.

Slots are handed out by one process alone.  Others that write records open the store as `WorkerStore`, with slots that
were reserved for them; `commit` then says which of these records count.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ...common.files import create_file, identity, open_no_follow
from ..errors import SimulationError, directory_gone
from ..system.shared_memory import SharedMemory, whole_pages
from .record_checksums import RecordChecksums, damaged_record

_CHUNK_BYTES = 16 * 2**20


class ClientRecords(Protocol):
    """What local training needs of the records."""

    names: tuple[str, ...]  # of the vectors in a record; none: nothing is kept

    def read(self, client: int) -> dict[str, Tensor] | None:
        """The client's vectors, to be read only; None if it never wrote."""

    def write(self, client: int, vectors: Mapping[str, Tensor]) -> None: ...


class ClientStore:
    def __init__(
        self,
        names: tuple[str, ...],
        size: int,
        dtype: torch.dtype,
        directory: Path | None = None,
        memory: SharedMemory | None = None,
    ) -> None:
        """Records of vectors [size] called `names`; without a directory in memory, of this process alone unless shared
        memory is given."""
        self.names = names
        self._size, self._dtype = size, dtype
        self._directory, self._memory = directory, memory
        self._numpy_dtype = np.dtype(str(dtype).removeprefix("torch."))
        self.record_bytes = max(1, len(names)) * size * self._numpy_dtype.itemsize
        self.chunk_slots = max(1, _CHUNK_BYTES // self.record_bytes)
        self._chunks: list[np.ndarray] = []
        self._slots: dict[int, int] = {}  # client -> slot
        self._free: list[int] = []
        self._journal: list[tuple[int, int | None, int]] = []  # client, old slot, new slot, since the last mark
        self._replaced: list[int] = []  # since the last checkpoint
        self._held: list[int] = []  # replaced before the last checkpoint, but in the one before it
        self._reserved: dict[int, int] = {}  # client -> slot that others may be writing to
        self._checksums = RecordChecksums()
        self._made: tuple[int, int] | None = None  # identity of the directory, once it is used
        self._read_only_slots = 0  # slots below this number are in files that are only read

    def read(self, client: int) -> dict[str, Tensor] | None:
        """The client's vectors, to be read only; None if it never wrote."""
        slot = self._slots.get(client)
        return None if slot is None else self._record(self._verified(client, slot))

    def write(self, client: int, vectors: Mapping[str, Tensor]) -> None:
        if not self.names:
            return
        slot = self._take()
        self._fill(slot, vectors)
        self._replace(client, slot)

    def reserve(self, clients: Iterable[int]) -> dict[int, tuple[int, int]]:
        """For each client the slot of its record, -1 if it has none, and a fresh one for its next."""
        if not self.names:
            return dict.fromkeys(clients, (-1, -1))
        for client in clients:
            if client in self._slots:  # will be read where there are no checksums
                self._verified(client, self._slots[client])
            self._reserved[client] = self._take()
        return {client: (self._slots.get(client, -1), slot) for client, slot in self._reserved.items()}

    def commit(self, clients: Iterable[int]) -> None:
        """These wrote the slots reserved for them; the other slots are free again."""
        for client in clients if self.names else ():
            self._replace(client, self._reserved.pop(client))
        self._release()

    def empty_copy(self, directory: Path | None) -> ClientStore:
        """Another store for such records."""
        return ClientStore(self.names, self._size, self._dtype, directory)

    def for_workers(self) -> WorkerStore:
        """The store as processes that write to reserved slots open it."""
        if self._directory is None and self._memory is None:
            assert not self._chunks, "records were written to memory that cannot be shared"
            self._memory = SharedMemory()
        self._make_directory()
        return WorkerStore(self.names, self._size, self._dtype, self._directory, self._memory)

    def mark(self) -> None:
        """What was written so far is final."""
        replaced = [old for _, old, _ in self._journal if old is not None]
        if self._directory is None:  # no checkpoint will ask for them
            self._free += [slot for slot in replaced if slot >= self._read_only_slots]
        else:
            self._replaced += replaced
        self._journal.clear()

    def rollback(self) -> None:
        """Forgets what was written since the last mark.  Nobody may be writing to a reserved slot any more."""
        self._release()
        for client, old, new in reversed(self._journal):
            self._free.append(new)
            if old is None:
                del self._slots[client]
            else:
                self._slots[client] = old
        self._journal.clear()

    def snapshot(self) -> dict[str, Tensor]:
        """Which slot holds whose record, for a checkpoint; what it refers to is on disk when this returns."""
        for chunk in self._chunks:
            if isinstance(chunk, np.memmap):
                chunk.flush()
        clients = sorted(self._slots)
        slots = [self._slots[client] for client in clients]
        for slot in self._checksums.missing(slots):
            self._checksums.add(slot, self._rows(slot))
        sums = self._checksums.of(slots)
        return {"clients": torch.tensor(clients), "slots": torch.tensor(slots), "checksums": sums}

    def checkpointed(self) -> None:
        """The last snapshot is safe: slots that only older checkpoints need are free again."""
        self._free += self._held
        self._held, self._replaced = self._replaced, []

    def restore(self, snapshot: Mapping[str, Tensor], others: Iterable[Mapping[str, Tensor]] = ()) -> None:
        """Back to a snapshot.  Slots of `others`, the checkpoints kept beside it, stay until the next is written."""
        self._open_chunks()
        clients, slots = (snapshot[key].tolist() for key in ("clients", "slots"))
        missing = [slot for slot in slots if slot >= len(self._chunks) * self.chunk_slots]
        if missing:
            raise SimulationError(
                f"{self._directory} lacks the records of {len(missing)} clients: files chunk-*.bin were removed or "
                "cut; restore them, or start the run anew"
            )
        self._slots = dict(zip(clients, slots, strict=True))
        self._checksums.restore(snapshot)
        used = set(slots)
        self._held = sorted({slot for other in others for slot in other["slots"].tolist()} - used)
        self._journal, self._replaced, self._reserved = [], [], {}
        self._free = sorted(set(range(len(self._chunks) * self.chunk_slots)) - used - set(self._held), reverse=True)

    def write_to_memory(self) -> None:
        """From now on nothing is written to the files: new records go to memory."""
        self._directory, self._memory, self._read_only_slots = None, None, len(self._chunks) * self.chunk_slots
        self._free, self._held, self._replaced = [], [], []

    def _replace(self, client: int, slot: int) -> None:
        self._journal.append((client, self._slots.get(client), slot))
        self._slots[client] = slot

    def _release(self) -> None:
        self._free += self._reserved.values()
        self._reserved.clear()

    def _fill(self, slot: int, vectors: Mapping[str, Tensor]) -> None:
        record = self._record(slot)
        for name in self.names:
            record[name].copy_(vectors[name])

    def _record(self, slot: int) -> dict[str, Tensor]:
        return dict(zip(self.names, torch.from_numpy(self._rows(slot)), strict=True))

    def _rows(self, slot: int) -> np.ndarray:
        rows: np.ndarray = self._chunks[slot // self.chunk_slots][slot % self.chunk_slots]
        return rows

    def _verified(self, client: int, slot: int) -> int:
        if not self._checksums.is_unverified(slot) or self._checksums.verify(slot, self._rows(slot)):
            return slot
        number, place = divmod(slot, self.chunk_slots)
        chunk = self._chunks[number]
        assert isinstance(chunk, np.memmap)
        raise damaged_record(client, chunk.filename, place * self.record_bytes, self.record_bytes)

    def _take(self) -> int:
        if not self._free:
            first = len(self._chunks) * self.chunk_slots
            self._chunks.append(self._new_chunk(len(self._chunks)))
            self._free = list(range(first + self.chunk_slots - 1, first - 1, -1))
        slot = self._free.pop()
        self._checksums.taken(slot)
        return slot

    @property
    def _shape(self) -> tuple[int, int, int]:
        return self.chunk_slots, len(self.names), self._size

    def _new_chunk(self, number: int) -> np.ndarray:
        if self._memory is not None:
            self._memory.grow((number + 1) * self._stride)
            return self._mapped(number)
        if self._directory is None:
            return np.zeros(self._shape, self._numpy_dtype)  # pages are taken when first written
        path, size = self._path(number), self.chunk_slots * self.record_bytes
        try:
            self._make_directory()
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

    def _make_directory(self) -> None:
        """In the run directory.  It is not made a second time, and another one in its place is left alone."""
        if self._directory is None:
            return
        if self._made is None:
            with contextlib.suppress(FileNotFoundError):
                self._directory.mkdir(exist_ok=True)
            self._made = identity(self._directory)
        if self._made is None or self._made != identity(self._directory):
            raise directory_gone(self._directory)

    def _mapped(self, number: int) -> np.ndarray:
        """A chunk that exists, in a file or in shared memory."""
        if self._memory is None:
            try:
                with open_no_follow(self._path(number), "r+b") as file:
                    return np.memmap(file, self._numpy_dtype, "r+", shape=self._shape)
            except FileNotFoundError:
                raise directory_gone(self._path(number)) from None
        memory = self._memory.map(number * self._stride, self._stride)
        return np.ndarray(self._shape, self._numpy_dtype, memory)

    @property
    def _stride(self) -> int:
        return whole_pages(self.chunk_slots * self.record_bytes)

    def _open_chunks(self) -> None:
        self._chunks = []
        size = self.chunk_slots * self.record_bytes
        while self._directory is not None and (path := self._path(len(self._chunks))).exists():
            if path.stat().st_size != size:
                break  # was being made when the process died; made anew when needed
            self._chunks.append(self._mapped(len(self._chunks)))

    def _path(self, number: int) -> Path:
        assert self._directory is not None
        return self._directory / f"chunk-{number:05d}.bin"


class WorkerStore(ClientStore):
    """The records of a store whose owner is another process, which says where each client reads and writes."""

    def lock_directory(self) -> int | None:
        """Until the file descriptor is closed, or the process ends, the run directory counts as in use."""
        if self._directory is None:
            return None
        import fcntl

        descriptor = os.open(self._directory, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        return descriptor

    def assign(self, slots: Mapping[int, tuple[int, int]]) -> None:
        """The slots of the clients to come, as `reserve` gave them."""
        self._slots = {client: old for client, (old, _) in slots.items() if old >= 0}
        self._reserved = {client: new for client, (_, new) in slots.items()}

    def write(self, client: int, vectors: Mapping[str, Tensor]) -> None:
        if self.names:
            self._fill(self._reserved[client], vectors)

    def _record(self, slot: int) -> dict[str, Tensor]:
        while slot >= len(self._chunks) * self.chunk_slots:  # the owner has made more since
            self._chunks.append(self._mapped(len(self._chunks)))
        return super()._record(slot)

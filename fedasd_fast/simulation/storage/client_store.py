"""What clients keep from round to round, in memory-mapped files; a client costs nothing before its first write.

A client's record is a row [names, P] in a slot.  Writing takes a fresh slot and never touches the old one, which stays
as it is until two checkpoints have been written after it was replaced: so a run that is killed at any moment finds
every record of its last checkpoint, and of the one before, unharmed.  `rollback` returns to the last `mark` likewise.

Records of a checkpoint have checksums, which are verified when a record of a restored checkpoint is first read.

Slots are handed out by one process alone.  Others that write records open the store as `WorkerStore`, with slots that
were reserved for them; `commit` then says which of these records count.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import SimulationError
from ..system.shared_memory import SharedMemory
from .record_checksums import RecordChecksums, damaged_record
from .record_chunks import RecordChunks

_NONE = -1  # in place of the slot of a client that never wrote


class ClientRecords(Protocol):
    """What local training needs of the records."""

    names: tuple[str, ...]  # of the vectors in a record; none: nothing is kept

    def read(self, client: int) -> dict[str, Tensor] | None:
        """The client's vectors, to be read only; None if it never wrote."""

    def write(self, client: int, vectors: Mapping[str, Tensor]) -> None: ...

    def known(self, clients: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the clients have a record."""

    def read_cohort(self, name: str, clients: NDArray[np.int64], out: Tensor) -> None:
        """out [K, P] becomes one of the vectors of each client, all of which have a record."""

    def write_cohort(self, clients: NDArray[np.int64], vectors: Mapping[str, Tensor]) -> None:
        """Writes the records of all clients; vectors are [K, P]."""


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
        self._chunks = RecordChunks(len(names), size, dtype, directory, memory)
        self._slots: dict[int, int] = {}  # client -> slot
        self._free: list[int] = []
        self._journal: list[tuple[int, int | None, int]] = []  # client, old slot, new slot, since the last mark
        self._replaced: list[int] = []  # since the last checkpoint
        self._held: list[int] = []  # replaced before the last checkpoint, but in the one before it
        self._reserved: dict[int, int] = {}  # client -> slot that others may be writing to
        self._checksums = RecordChecksums()
        self._read_only_slots = 0  # slots below this number are in files that are only read

    @property
    def record_bytes(self) -> int:
        return self._chunks.record_bytes

    @property
    def chunk_slots(self) -> int:
        """Records in a file."""
        return self._chunks.slots_each

    def read(self, client: int) -> dict[str, Tensor] | None:
        """The client's vectors, to be read only; None if it never wrote."""
        slot = self._slots.get(client)
        if slot is None:
            return None
        self._verify([client], [slot])
        return self._record(slot)

    def write(self, client: int, vectors: Mapping[str, Tensor]) -> None:
        if not self.names:
            return
        slot = self._take()
        self._fill(slot, vectors)
        self._replace([client], [slot])

    def known(self, clients: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the clients have a record."""
        return np.not_equal(self._slots_of(clients.tolist()), _NONE)

    def read_cohort(self, name: str, clients: NDArray[np.int64], out: Tensor) -> None:
        """out [K, P] becomes one of the vectors of each client, all of which have a record."""
        ids = clients.tolist()
        slots = self._slots_of(ids)
        self._verify(ids, slots)
        rows = out if out.device.type == "cpu" and out.is_contiguous() else torch.empty(out.shape, dtype=out.dtype)
        self._chunks.read(np.array(slots), self.names.index(name), rows.numpy())
        if rows is not out:
            out.copy_(rows)

    def write_cohort(self, clients: NDArray[np.int64], vectors: Mapping[str, Tensor]) -> None:
        """Writes the records of all clients; vectors are [K, P]."""
        if not self.names:
            return
        slots = self._take_slots(len(clients))
        self._fill_slots(slots, vectors)
        self._replace(clients.tolist(), slots)

    def reserve(self, clients: Iterable[int]) -> dict[int, tuple[int, int]]:
        """For each client the slot of its record, -1 if it has none, and a fresh one for its next."""
        if not self.names:
            return dict.fromkeys(clients, (-1, -1))
        ids = list(clients)
        before = self._slots_of(ids)
        self._verify(ids, before)  # they will be read where there are no checksums
        slots = self._take_slots(len(ids))
        self._reserved.update(zip(ids, slots, strict=True))
        return dict(zip(ids, zip(before, slots, strict=True), strict=True))

    def commit(self, clients: Iterable[int]) -> None:
        """These wrote the slots reserved for them; the other slots are free again."""
        if self.names:
            ids = list(clients)
            self._replace(ids, list(map(self._reserved.pop, ids)))
        self._release()

    def empty_copy(self, directory: Path | None) -> ClientStore:
        """Another store for such records."""
        return ClientStore(self.names, self._size, self._dtype, directory)

    def for_workers(self) -> WorkerStore:
        """The store as processes that write to reserved slots open it."""
        chunks = self._chunks
        if chunks.directory is None and chunks.memory is None:
            assert not len(chunks), "records were written to memory that cannot be shared"
            chunks.memory = SharedMemory()
        chunks.make_directory()
        return WorkerStore(self.names, self._size, self._dtype, chunks.directory, chunks.memory)

    def mark(self) -> None:
        """What was written so far is final."""
        replaced = [old for _, old, _ in self._journal if old is not None]
        if self._chunks.directory is None:  # no checkpoint will ask for them
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
        self._chunks.flush()
        clients = sorted(self._slots)
        slots = [self._slots[client] for client in clients]
        for slot in self._checksums.missing(slots):
            self._checksums.add(slot, self._chunks.row(slot))
        sums = self._checksums.of(slots)
        return {"clients": torch.tensor(clients), "slots": torch.tensor(slots), "checksums": sums}

    def checkpointed(self) -> None:
        """The last snapshot is safe: slots that only older checkpoints need are free again."""
        self._free += self._held
        self._held, self._replaced = self._replaced, []

    def restore(self, snapshot: Mapping[str, Tensor], others: Iterable[Mapping[str, Tensor]] = ()) -> None:
        """Back to a snapshot.  Slots of `others`, the checkpoints kept beside it, stay until the next is written."""
        self._chunks.open()
        clients, slots = (snapshot[key].tolist() for key in ("clients", "slots"))
        missing = [slot for slot in slots if slot >= self._chunks.slots]
        if missing:
            raise SimulationError(
                f"{self._chunks.directory} lacks the records of {len(missing)} clients: files chunk-*.bin were removed "
                "or cut; restore them, or start the run anew"
            )
        self._slots = dict(zip(clients, slots, strict=True))
        self._checksums.restore(snapshot)
        used = set(slots)
        self._held = sorted({slot for other in others for slot in other["slots"].tolist()} - used)
        self._journal, self._replaced, self._reserved = [], [], {}
        self._free = sorted(set(range(self._chunks.slots)) - used - set(self._held), reverse=True)

    def write_to_memory(self) -> None:
        """From now on nothing is written to the files: new records go to memory."""
        self._chunks.directory, self._chunks.memory, self._read_only_slots = None, None, self._chunks.slots
        self._free, self._held, self._replaced = [], [], []

    def _slots_of(self, clients: Sequence[int]) -> list[int]:
        """Of each client's record; _NONE if it never wrote."""
        return list(map(self._slots.get, clients, repeat(_NONE)))

    def _replace(self, clients: Sequence[int], slots: Sequence[int]) -> None:
        before = map(self._slots.get, clients)
        self._journal.extend(zip(clients, before, slots, strict=True))
        self._slots.update(zip(clients, slots, strict=True))

    def _release(self) -> None:
        self._free += self._reserved.values()
        self._reserved.clear()

    def _fill(self, slot: int, vectors: Mapping[str, Tensor]) -> None:
        record = self._record(slot)
        for name in self.names:
            record[name].copy_(vectors[name])

    def _fill_slots(self, slots: Sequence[int], vectors: Mapping[str, Tensor]) -> None:
        for number, name in enumerate(self.names):
            self._chunks.write(np.array(slots), number, vectors[name].cpu().numpy())

    def _record(self, slot: int) -> dict[str, Tensor]:
        return dict(zip(self.names, torch.from_numpy(self._chunks.row(slot)), strict=True))

    def _verify(self, clients: Sequence[int], slots: Sequence[int]) -> None:
        """Of records in a restored checkpoint, before they are first read."""
        for slot in self._checksums.unverified(slots):
            if not self._checksums.verify(slot, self._chunks.row(slot)):
                file, start = self._chunks.place(slot)
                raise damaged_record(clients[slots.index(slot)], file, start, self.record_bytes)

    def _take(self) -> int:
        if not self._free:
            first = self._chunks.slots
            self._chunks.add()
            self._free = list(range(self._chunks.slots - 1, first - 1, -1))
        slot = self._free.pop()
        self._checksums.taken([slot])
        return slot

    def _take_slots(self, number: int) -> list[int]:
        """As so many calls of `_take`; all, or none if there is no room."""
        if not number:
            return []
        slots: list[int] = []
        try:
            while len(slots) < number:
                slots.append(self._take())
                rest = min(number - len(slots), len(self._free))
                slots += self._free[len(self._free) - rest :][::-1]
                del self._free[len(self._free) - rest :]
        except BaseException:
            self._free += slots[::-1]
            raise
        self._checksums.taken(slots)
        return slots


class WorkerStore(ClientStore):
    """The records of a store whose owner is another process, which says where each client reads and writes."""

    def lock_directory(self) -> int | None:
        """Until the file descriptor is closed, or the process ends, the run directory counts as in use."""
        if self._chunks.directory is None:
            return None
        import fcntl

        descriptor = os.open(self._chunks.directory, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        return descriptor

    def assign(self, slots: Mapping[int, tuple[int, int]]) -> None:
        """The slots of the clients to come, as `reserve` gave them."""
        self._slots = {client: old for client, (old, _) in slots.items() if old >= 0}
        self._reserved = {client: new for client, (_, new) in slots.items()}

    def write(self, client: int, vectors: Mapping[str, Tensor]) -> None:
        if self.names:
            self._fill(self._reserved[client], vectors)

    def write_cohort(self, clients: NDArray[np.int64], vectors: Mapping[str, Tensor]) -> None:
        if self.names:
            self._fill_slots(list(map(self._reserved.__getitem__, clients.tolist())), vectors)

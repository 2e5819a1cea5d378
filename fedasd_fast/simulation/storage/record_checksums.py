"""Checksums of client records, by slot: computed for a checkpoint, verified when a restored record is first read."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import SimulationError

_UNKNOWN = -1  # of a record in a checkpoint of an older version


class RecordChecksums:
    """A slot is written once after it was taken; until it is taken again its checksum stays what it was."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self._unverified: set[int] = set()

    def taken(self, slots: Iterable[int]) -> None:
        """They are about to be written."""
        for slot in self._known.keys() & slots:
            del self._known[slot]
        self._unverified.difference_update(slots)

    def missing(self, slots: Iterable[int]) -> list[int]:
        """Those of the slots that were written since the last checkpoint."""
        return [slot for slot in slots if slot not in self._known]

    def add(self, slot: int, record: np.ndarray[Any, Any]) -> None:
        self._known[slot] = zlib.crc32(record.data)

    def of(self, slots: Iterable[int]) -> Tensor:
        """For a checkpoint."""
        return torch.tensor([self._known[slot] for slot in slots], dtype=torch.int64)

    def restore(self, snapshot: Mapping[str, Tensor]) -> None:
        """As in a checkpoint; nothing is verified yet."""
        slots = snapshot["slots"].tolist()
        found = snapshot["checksums"].tolist() if "checksums" in snapshot else [_UNKNOWN] * len(slots)
        self._known = dict(zip(slots, found, strict=True))
        self._unverified = {slot for slot, checksum in self._known.items() if checksum != _UNKNOWN}

    def unverified(self, slots: Iterable[int]) -> list[int]:
        """Those of the slots whose records have not been compared with their checksums."""
        return sorted(self._unverified.intersection(slots)) if self._unverified else []

    def verify(self, slot: int, record: np.ndarray[Any, Any]) -> bool:
        """Whether the record is what the checkpoint refers to."""
        if zlib.crc32(record.data) != self._known[slot]:
            return False
        self._unverified.discard(slot)
        return True


def damaged_record(client: int, file: object, start: int, size: int) -> SimulationError:
    return SimulationError(
        f"the record of client {client} is damaged: {file} has another checksum than the checkpoint says ({size:,} "
        f"bytes from {start:,} on); restore that file from a copy, or remove the run's checkpoint folder to run from "
        "the first round again (with the same result)"
    )

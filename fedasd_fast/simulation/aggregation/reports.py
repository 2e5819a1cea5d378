"""What is known of clients after their local training: one array, and the errors of those that were dropped."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

# loss: mean over the client's steps; distance: ||w_k - w_t||; skipped: steps whose gradient overflowed in float16.
# Eight bytes each, so that a row is as many int64.
COLUMNS = ("client", "steps", "samples", "loss", "distance", "skipped")
_ROW = np.dtype([(name, "f8" if name in ("loss", "distance") else "i8") for name in COLUMNS])


class ClientReports:
    def __init__(self) -> None:
        self._parts: list[np.ndarray] = []
        self.errors: dict[int, str] = {}  # client -> why it was dropped

    def add(
        self,
        clients: ArrayLike,
        steps: ArrayLike,
        samples: ArrayLike,
        losses: ArrayLike,
        distances: ArrayLike,
        skipped: ArrayLike = 0,
    ) -> None:
        """Of one client, or of several: [m] each."""
        part = np.empty(np.size(clients), _ROW)
        for name, values in zip(COLUMNS, (clients, steps, samples, losses, distances, skipped), strict=True):
            part[name] = values
        self._parts.append(part)

    def drop(self, client: int, error: str) -> None:
        self.errors[client] = error

    def extend(self, other: ClientReports) -> None:
        self._parts += other._parts
        self.errors |= other.errors

    @property
    def clients(self) -> NDArray[np.int64]:
        """Those that finished, in the order of their ids."""
        return self.column("client")

    def column(self, name: str) -> np.ndarray:
        """One of COLUMNS for all clients that finished, in the order of their ids."""
        return np.ascontiguousarray(self._sorted()[name])

    def bits(self) -> NDArray[np.int64]:
        """[m, columns]: floats as the integers that their bits spell."""
        return self._sorted().view(np.int64).reshape(-1, len(COLUMNS))

    @classmethod
    def from_bits(cls, rows: NDArray[np.int64], errors: dict[int, str]) -> ClientReports:
        reports = cls()
        reports._parts.append(np.ascontiguousarray(rows).view(_ROW).reshape(-1))
        reports.errors = errors
        return reports

    def _sorted(self) -> np.ndarray:
        if len(self._parts) != 1 or (np.diff(self._parts[0]["client"]) < 0).any():
            rows = np.concatenate([np.empty(0, _ROW), *self._parts])
            self._parts = [rows[np.argsort(rows["client"], kind="stable")]]
        return self._parts[0]

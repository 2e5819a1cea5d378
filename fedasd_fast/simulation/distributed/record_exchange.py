"""Records of clients that are trained by another rank than the one that keeps them.

Clients are grouped before they are dealt out, so that groups do not depend on the number of ranks; then a group may
hold clients of several owners.  Their records travel to the rank that trains them, and the new ones back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..storage.client_store import ClientRecords
from .process_group import ProcessGroup
from .sharding import Shard


class ExchangedRecords:
    """The records of a round's clients, as the rank that trains them sees them: its own, and those it was sent."""

    def __init__(self, own: ClientRecords, shard: Shard, group: ProcessGroup, size: int, dtype: torch.dtype) -> None:
        """Vectors of a record are [size]."""
        self.names = own.names
        self._own, self._shard, self._group = own, shard, group
        self._shape, self._dtype = (len(own.names), size), dtype
        self._received: dict[int, dict[str, Tensor]] = {}
        self._written: dict[int, Tensor] = {}

    def read(self, client: int) -> dict[str, Tensor] | None:
        return self._own.read(client) if self._shard.owns(client) else self._received.get(client)

    def write(self, client: int, vectors: Mapping[str, Tensor]) -> None:
        if self._shard.owns(client):
            self._own.write(client, vectors)
        else:
            self._written[client] = torch.stack([vectors[name].to("cpu", copy=True) for name in self.names])

    def known(self, clients: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.array([self.read(client) is not None for client in clients.tolist()], bool)

    def read_cohort(self, name: str, clients: NDArray[np.int64], out: Tensor) -> None:
        for row, client in zip(out, clients.tolist(), strict=True):
            record = self.read(client)
            assert record is not None
            row.copy_(record[name])

    def write_cohort(self, clients: NDArray[np.int64], vectors: Mapping[str, Tensor]) -> None:
        for k, client in enumerate(clients.tolist()):
            self.write(client, {name: vectors[name][k] for name in self.names})

    def send_to_trainers(self, trainer_of: Mapping[int, int]) -> None:
        """Before training.  `trainer_of` is the rank that trains each of the round's clients, the same in all ranks."""
        clients = list(trainer_of)
        exists = torch.tensor([self._shard.owns(k) and self._own.read(k) is not None for k in clients]).long()
        self._group.all_reduce(exists)
        known = [client for client, yes in zip(clients, exists.tolist(), strict=True) if yes]
        routes = [(client, self._shard.owner(client), trainer_of[client]) for client in known]
        self._received = dict(self._sent(routes, self._stored))

    def return_to_owners(self, trainer_of: Mapping[int, int], finished: Iterable[int]) -> None:
        """After training, for clients whose update counts."""
        routes = [(client, trainer_of[client], self._shard.owner(client)) for client in finished]
        for client, vectors in self._sent(routes, self._written.__getitem__):
            self._own.write(client, vectors)
        self._received, self._written = {}, {}

    def _stored(self, client: int) -> Tensor:
        record = self._own.read(client)
        assert record is not None
        return torch.stack([record[name] for name in self.names])

    def _sent(
        self, routes: Sequence[tuple[int, int, int]], load: Callable[[int], Tensor]
    ) -> list[tuple[int, dict[str, Tensor]]]:
        """What this rank receives, of routes (client, from, to)."""
        me, ranks = self._shard.rank, range(self._shard.world)
        travelling = [route for route in routes if route[1] != route[2]]
        empty = torch.empty(0, *self._shape, dtype=self._dtype)
        parts = []
        for rank in ranks:
            mine = [load(client) for client, *route in travelling if route == [me, rank]]
            parts.append(torch.stack(mine) if mine else empty)
        expected = [
            [client for client, source, target in travelling if (source, target) == (rank, me)] for rank in ranks
        ]
        received = self._group.exchange(parts, [len(clients) for clients in expected])
        return [
            (client, dict(zip(self.names, rows, strict=True)))
            for clients, records in zip(expected, received, strict=True)
            for client, rows in zip(clients, records, strict=True)
        ]

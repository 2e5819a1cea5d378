"""Sharding of the clients' records over ranks: which rank keeps which record, and where.

A client belongs to one rank for the whole run, which keeps its record: a rank's directory may be on its machine's own
disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ..storage.client_store import ClientStore


@dataclass(frozen=True)
class Shard:
    """The records of one rank; those of a single process are in the run's clients/ itself."""

    clients: Path | None = None  # of the run; None: records are in memory
    rank: int = 0
    world: int = 1

    @property
    def directory(self) -> Path | None:
        if self.clients is None or self.world == 1:
            return self.clients
        return self.clients / f"rank-{self.rank}-of-{self.world}"

    def owner(self, client: int) -> int:
        """The rank that keeps the client's record."""
        return client % self.world

    def owns(self, client: int) -> bool:
        return self.owner(client) == self.rank


def pack_snapshots(snapshots: Sequence[Mapping[str, Tensor]]) -> Any:
    """For a checkpoint, from the snapshots of all ranks."""
    return snapshots[0] if len(snapshots) == 1 else list(snapshots)


def restore_records(
    store: ClientStore,
    shard: Shard,
    kept: Sequence[Any],
    which: int,
    read_only: bool,
    wanted: Callable[[int], bool] = lambda _: True,
) -> None:
    """The store as in kept[which], of what `pack_snapshots` made for each kept checkpoint.

    If that was made by another number of ranks, the records of this shard, as far as they are `wanted`, are copied from
    the directories of those ranks; these stay as they are, since the checkpoint needs them until there are newer ones.
    """
    snapshots = [_snapshots(content) for content in kept]
    ours = [found[shard.rank] if len(found) == shard.world else None for found in snapshots]
    mine = ours.pop(which)
    empty = {"clients": _NONE, "slots": _NONE}
    store.restore(mine or empty, [other for other in ours if other is not None])
    if read_only:
        store.write_to_memory()
    if mine is None:
        for client, record in _records(store, shard, snapshots[which], lambda k: shard.owns(k) and wanted(k)):
            store.write(client, record)
        store.mark()


_NONE = Tensor([]).long()


def _snapshots(content: Any) -> list[Mapping[str, Tensor]]:
    return content if isinstance(content, list) else [content]


def _records(
    store: ClientStore, shard: Shard, snapshots: list[Mapping[str, Tensor]], wanted: Callable[[int], bool]
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    for rank, snapshot in enumerate(snapshots):
        theirs = store.empty_copy(Shard(shard.clients, rank, len(snapshots)).directory)
        theirs.restore(snapshot)
        for client in filter(wanted, snapshot["clients"].tolist()):
            record = theirs.read(client)
            assert record is not None
            yield client, record

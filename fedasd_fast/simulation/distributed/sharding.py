"""Which rank keeps which client's record, and where.

A client belongs to one rank for the whole run, so records never travel: a rank's folder may be on its machine's own
disk.  The price is that a round's clients are not always spread evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ..storage.client_store import ClientStore


@dataclass(frozen=True)
class Part:
    """The records of one rank; those of a rank alone are in the run's clients/ itself."""

    clients: Path | None = None  # of the run
    rank: int = 0
    world: int = 1

    @property
    def folder(self) -> Path | None:
        if self.clients is None or self.world == 1:
            return self.clients
        return self.clients / f"rank-{self.rank}-of-{self.world}"

    def owns(self, client: int) -> bool:
        return client % self.world == self.rank


def to_plain(snapshots: Sequence[Mapping[str, Tensor]]) -> Any:
    """For a checkpoint, from the snapshots of all ranks."""
    return snapshots[0] if len(snapshots) == 1 else list(snapshots)


def restore(
    store: ClientStore,
    part: Part,
    kept: Sequence[Any],
    which: int,
    read_only: bool,
    wanted: Callable[[int], bool] = lambda _: True,
) -> None:
    """The store as in kept[which], of what `to_plain` made for each kept checkpoint.

    If that was made by another number of ranks, the records of this part, as far as they are `wanted`, are copied from
    the folders of those; which are left as they are, since the checkpoint needs them until there are newer ones.
    """
    snapshots = [_snapshots(content) for content in kept]
    ours = [found[part.rank] if len(found) == part.world else None for found in snapshots]
    mine = ours.pop(which)
    empty = {"clients": _NONE, "slots": _NONE}
    store.restore(mine or empty, [other for other in ours if other is not None])
    if read_only:
        store.overlay()
    if mine is None:
        for client, record in _records(store, part, snapshots[which], lambda k: part.owns(k) and wanted(k)):
            store.write(client, record)
        store.mark()


_NONE = Tensor([]).long()


def _snapshots(content: Any) -> list[Mapping[str, Tensor]]:
    return content if isinstance(content, list) else [content]


def _records(
    store: ClientStore, part: Part, snapshots: list[Mapping[str, Tensor]], wanted: Callable[[int], bool]
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    for rank, snapshot in enumerate(snapshots):
        theirs = store.like(Part(part.clients, rank, len(snapshots)).folder)
        theirs.restore(snapshot)
        for client in filter(wanted, snapshot["clients"].tolist()):
            record = theirs.read(client)
            assert record is not None
            yield client, record

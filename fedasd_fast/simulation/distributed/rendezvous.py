"""Rendezvous: how ranks find each other when torchrun starts them, for the first time or again.

torchrun's store may still hold entries of ranks that have died since, so a name that was used before could lead to
addresses where no process listens.  The leader therefore makes up a new name for every start, and sends it to ranks
that are alive: each rank writes a random word, and accepts only the answer to that word.
"""

from __future__ import annotations

import time
import uuid
from datetime import timedelta
from typing import Any

_POLL_SECONDS = 0.01


def agree_on_name(store: Any, rank: int, world: int, timeout: timedelta) -> str:
    """A name that exactly the ranks of this start agree on."""
    word = uuid.uuid4().hex
    if rank:
        store.set(f"fedasd/call/{rank}", word)
        name: str = _await(store, f"fedasd/answer/{word}", timeout)
        store.set(f"fedasd/heard/{name}/{rank}", "yes")
        return name
    until = time.monotonic() + timeout.total_seconds()
    missing = set(range(1, world))
    while missing:
        for other in list(missing):
            if store.check([f"fedasd/call/{other}"]):  # perhaps by a rank that has died: then the answer is never read
                store.set(f"fedasd/answer/{store.get(f'fedasd/call/{other}').decode()}", word)
            if store.check([f"fedasd/heard/{word}/{other}"]):
                missing.remove(other)
        if time.monotonic() > until:
            raise RuntimeError(f"ranks {sorted(missing)} did not start")
        time.sleep(_POLL_SECONDS)
    return word


def _await(store: Any, key: str, timeout: timedelta) -> str:
    store.wait([key], timeout)
    return str(store.get(key).decode())

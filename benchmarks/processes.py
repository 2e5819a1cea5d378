"""Process trees from Linux's /proc: suspends a whole tree, and adds up its memory."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import defaultdict
from pathlib import Path


def tree(root: int) -> list[int]:
    """The process and all its descendants that live."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it may end while we look
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]  # its name may hold anything
            children[int(parent)].append(int(entry.name))
    found = [root]
    for process in found:
        found += children[process]
    return found


def send(root: int, what: signal.Signals) -> None:
    for process in tree(root):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, what)


def peak_memory(root: int) -> int:
    """Bytes: the most that each living process of the tree ever had resident (VmHWM), added up.

    Pages that processes share, such as libraries and mapped data, count once for each.
    """
    total = 0
    for process in tree(root):
        with contextlib.suppress(OSError, StopIteration):
            lines = Path(f"/proc/{process}/status").read_text().splitlines()
            total += 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    return total

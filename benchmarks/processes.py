"""What a run's processes take of the machine, read from /proc."""

from __future__ import annotations

import os
from pathlib import Path


def tree(root: int | None = None) -> list[int]:
    """The process and all that descend from it."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rsplit(")", 1)[1].split()
        except OSError:  # it has just ended
            continue
        parents.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found = [root or os.getpid()]
    for pid in found:
        found += parents.get(pid, [])
    return found


def peak_memory(root: int | None = None) -> int:
    """Bytes: the largest resident sets of all its processes, added; pages that they share count several times."""
    total = 0
    for pid in tree(root):
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    return total

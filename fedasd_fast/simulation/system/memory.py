"""Memory that this process can take: what the machine has, and what its control groups (containers) allow.

See the kernel's documentation: admin-guide/cgroup-v2 and admin-guide/cgroup-v1/memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

# Limit, use and what can be given back at once: files with one number each, and a key of memory.stat.
_V2 = ("memory.max", "memory.current", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def available_memory(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes that can be taken without swapping, or being killed; None where the system does not tell."""
    found = [_numbers(proc / "meminfo").get("MemAvailable:")]
    found += [_room(group, files) for group, files in _control_groups(proc, cgroups)]
    return min((size for size in found if size is not None), default=None)


def _control_groups(proc: Path, cgroups: Path) -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """The groups that this process is in and all groups around them: each has a limit of its own.

    Inside of a container the path may be that of the host, which is not there; then its own group is at the top.
    """
    for line in _text(proc / "self" / "cgroup").splitlines():
        _, kinds, path = line.split(":", 2)
        if kinds == "":
            top, files = cgroups, _V2
        elif "memory" in kinds.split(","):
            top, files = cgroups / "memory", _V1
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts) + 1):
            yield top.joinpath(*parts[:depth]), files


def _room(group: Path, files: tuple[str, str, str]) -> int | None:
    """What the group may still take; None if it has no limit."""
    limit, used = (_text(group / name).strip() for name in files[:2])
    if not limit.isdigit() or not used.isdigit():  # `max`, or there is no such file
        return None
    return max(0, int(limit) - int(used) + _numbers(group / "memory.stat").get(files[2], 0))


def _numbers(path: Path) -> dict[str, int]:
    """A file with a name and a number on each line, in bytes or with the unit kB."""
    found = {}
    for line in _text(path).splitlines():
        name, number, *unit = line.split() if len(line.split()) > 1 else ("", "")
        if number.isdigit():
            found[name] = int(number) * (1024 if unit == ["kB"] else 1)
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""

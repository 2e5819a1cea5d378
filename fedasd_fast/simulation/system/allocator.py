"""Memory that every local step takes and gives back stays with the process.

By default glibc returns large blocks to the system when they are freed; the next step then faults them in again, page
by page, which is a sixth of its time with the paper's CNN.
"""

from __future__ import annotations

import contextlib
import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's numbers for mallopt


def keep_freed_memory() -> None:
    """For the rest of the process; without effect where the C library is another."""
    with contextlib.suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        library.mallopt(_MMAP_THRESHOLD, 2**30)

"""What a system that is short of something says when workers start, with the remedy."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import tempfile
from collections.abc import Iterator

from ..errors import SimulationError

_FILES, _FILES_EACH = 16, 3  # that a pool of workers opens, and for each of them
_LONGEST_SOCKET = 107  # bytes of a socket's path; multiprocessing appends some 30 to the temporary directory


@contextlib.contextmanager
def start_errors(workers: int) -> Iterator[None]:
    """Turns what starting this many workers may raise into one line."""
    try:
        _check_descriptors(workers)
        yield
    except OSError as error:
        if remedy := _remedy(error, workers):
            raise SimulationError(f"worker processes cannot start: {remedy}") from error
        raise


def _check_descriptors(workers: int) -> None:
    """Before anything is started: a worker that finds none left dies with a traceback of its own."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit != resource.RLIM_INFINITY and len(os.listdir("/dev/fd")) + _FILES + _FILES_EACH * workers > limit:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def _remedy(error: OSError, workers: int) -> str | None:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return (
            f"no more than {limit} files may be open, which is too few for {workers} of them; raise the limit (`ulimit "
            "-n 1024`), set workers to fewer, or use executor = serial"
        )
    if "AF_UNIX path too long" in str(error):
        folder = tempfile.gettempdir()
        return (
            f"the path of the temporary directory has {len(os.fsencode(folder))} bytes, that of a socket in it may "
            f"have {_LONGEST_SOCKET}: {folder}; set TMPDIR to a shorter one"
        )
    if isinstance(error, FileNotFoundError):  # TMPDIR was removed, or there is no other that can be written
        return f"there is no temporary directory ({error}); create it, or set TMPDIR to one that exists"
    return None

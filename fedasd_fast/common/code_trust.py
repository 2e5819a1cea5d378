"""Code that a file names is run only if the user says so.

`model: package.module:Class` imports that module.  Whoever types it on the command line, or passes it in a Python call,
knows what it is; a configuration or a run directory may have come from anybody.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from pathlib import Path

from .schema import ConfigError

_log = logging.getLogger(__name__)


def require_trust(source: str | Path, named: Mapping[str, str], *, trusted: bool) -> None:
    """Refuses the code that the file or folder `source` names (import paths by setting), unless it is trusted."""
    if not named:
        return
    listed = ", ".join(f"{setting} = {path!r}" for setting, path in named.items())
    if not trusted:
        raise ConfigError(
            f"{source} names code to run: {listed}; look at that code, then allow it with --trust-code (in Python: "
            "trust_code=True)"
        )
    _tell(f"running code that {source} names: {listed}")


@functools.cache  # once for a source, however many runs follow from it
def _tell(line: str) -> None:
    _log.warning("%s", line)

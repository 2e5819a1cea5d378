"""Where data is looked for, and what to say when it is not there."""

from __future__ import annotations

import os
from pathlib import Path

from ..common.schema import ConfigError


class DatasetNotFound(ConfigError, FileNotFoundError):
    """Says where the data was looked for and how to get it."""


def data_directory(data_dir: str | Path | None = None) -> Path:
    """The given folder, else the environment's FEDASD_DATA, else fedasd_fast in XDG_DATA_HOME (~/.local/share)."""
    if data_dir is not None:
        return Path(data_dir).expanduser()
    if chosen := os.environ.get("FEDASD_DATA"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "fedasd_fast"

"""The data directory, and the error for a dataset that is not in it."""

from __future__ import annotations

import os
from pathlib import Path

from ..common.schema import ConfigError


class DatasetNotFound(ConfigError, FileNotFoundError):
    """The message says where the dataset was looked for and how to obtain it."""


def data_directory(data_dir: str | Path | None = None) -> Path:
    """The given directory, else FEDASD_DATA of the environment, else fedasd_fast in XDG_DATA_HOME (~/.local/share)."""
    if data_dir is not None:
        return Path(data_dir).expanduser()
    if chosen := os.environ.get("FEDASD_DATA"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "fedasd_fast"

"""Device profiles: how fast a client trains, receives and sends; drawn from a distribution or read from a file.

A profile is a function of (seed, client): a million clients cost nothing until they are sampled.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...common.elementary import exponential, normal_pairs
from ...common.philox import below, client_words, fraction, stream_key
from ...common.randomness import Stream
from ...common.schema import ConfigError
from ...settings import Devices
from .csv_columns import CsvColumns

_COLUMNS = ("speed", "download", "upload")
_SLOWEST = 1e-9  # so that no time is infinite


class Profiles(NamedTuple):
    """Of some clients."""

    speed: np.ndarray  # [m] samples a second
    download: np.ndarray  # [m] bytes a second
    upload: np.ndarray  # [m]


class DeviceProfiles:
    def __init__(self, settings: Devices, clients: int, seed: int) -> None:
        self._settings, self._key = settings, stream_key(seed, Stream.DEVICE)
        self._table: Profiles | None = None
        self._own_row = False  # whether row k is that of client k
        self.checksum = ""
        if settings.profile.endswith(".csv"):
            self._read(settings.profile, clients)

    def _read(self, path: str, clients: int) -> None:
        file = CsvColumns(path, "devices.profile", _COLUMNS, ["client"])
        table = Profiles(*(file.numbers(name, _SLOWEST, "a positive number") for name in _COLUMNS))
        self.checksum, self._own_row = file.checksum, "client" in file
        if self._own_row:
            ids = file.clients(clients)
            if len(ids) != clients or len(np.unique(ids)) != clients:
                missing = np.setdiff1d(np.arange(clients), ids)
                what = f"client {missing[0]} is missing" if len(missing) else "a client is there more than once"
                raise ConfigError(
                    f"{path}: {what}; expected each of the {clients} clients once, or no column client: each client "
                    "then draws one of the lines"
                )
            table = Profiles(*(column[np.argsort(ids)] for column in table))
        self._table = table

    def of(self, clients: np.ndarray) -> Profiles:
        if self._table is not None and self._own_row:
            return Profiles(*(column[clients] for column in self._table))
        words = client_words(self._key, 0, 0, clients)
        if self._table is not None:
            rows = below(len(self._table.speed), words[:, 2], words[:, 3])
            return Profiles(*(column[rows] for column in self._table))
        s = self._settings
        fast, near = self._factors(words)
        return Profiles(s.speed * fast, s.download * near, s.upload * near)

    def _factors(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[m] of speed, and of both bandwidths: a bad connection is bad in both directions."""
        s = self._settings
        if s.profile == "lognormal":
            normals = normal_pairs(words[:, 0], words[:, 1])
            return _exp(s.speed_spread * normals[0]), _exp(s.bandwidth_spread * normals[1])
        centred = 2 * fraction(words[:, :2]) - 1 if s.profile == "uniform" else np.zeros((len(words), 2))
        return 1 + s.speed_spread * centred[:, 0], 1 + s.bandwidth_spread * centred[:, 1]


def _exp(x: np.ndarray) -> np.ndarray:
    """The same bits on every machine."""
    x = x.astype(np.float64)
    small = exponential(-np.abs(x))
    return np.where(x > 0, 1 / small, small)

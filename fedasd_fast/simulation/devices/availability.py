"""When clients are there, as a function of simulated time: always, by a diurnal curve, or by intervals of a file."""

from __future__ import annotations

import math

import numpy as np

from ...common.philox import below, client_words, fraction, stream_key
from ...common.randomness import Stream
from ...settings import Availability
from .csv_columns import CsvColumns

_ZONE, _DRAW = 0, 1  # parts of a client's stream


class ClientAvailability:
    def __init__(self, settings: Availability, clients: int, seed: int) -> None:
        self._settings, self._key = settings, stream_key(seed, Stream.AVAILABILITY)
        self._intervals = Intervals(settings, clients) if settings.pattern.endswith(".csv") else None
        self.checksum = self._intervals.checksum if self._intervals else ""

    @property
    def always(self) -> bool:
        return self._settings.pattern == "always"

    def present(self, clients: np.ndarray, seconds: float, round: int, attempt: int) -> np.ndarray:
        """[m] whether each is there at this time, when the server looks for the round's clients the n-th time."""
        if self.always:
            return np.ones(len(clients), bool)
        if self._intervals:
            return self._intervals.present(clients, seconds, self._key)
        draw = client_words(self._key, attempt, _DRAW, clients, round)[:, 0]
        drawn: np.ndarray = fraction(draw) < self.chance(clients, seconds)
        return drawn

    def chance(self, clients: np.ndarray, seconds: float) -> np.ndarray:
        """[m] of the diurnal curve: mean + amplitude sin(2 pi (t / period - zone))."""
        s = self._settings
        assert s.period is not None
        zones = s.time_zones * fraction(client_words(self._key, 0, _ZONE, clients)[:, 0])
        found: np.ndarray = s.mean + s.amplitude * np.sin(2 * math.pi * (seconds / s.period - zones))
        return found


class Intervals:
    """[start, end) in seconds, of each client or of traces that clients draw; repeated after each period."""

    def __init__(self, settings: Availability, clients: int) -> None:
        file = CsvColumns(settings.pattern, "availability.pattern", ("start", "end"), ["client", "trace"])
        self.checksum, self._period = file.checksum, settings.period
        self._start = file.numbers("start", 0, "seconds, 0 or more")
        self._end = file.numbers("end", 0, "seconds, 0 or more")
        for row in np.flatnonzero(self._end <= self._start)[:1]:
            raise file.error(int(row), "end", f"more than its start, {self._start[row]:g}")
        if self._period is not None:
            for row in np.flatnonzero(self._end > self._period)[:1]:
                raise file.error(
                    int(row), "end", f"at most availability.period = {self._period:g}; set that, or null: not repeated"
                )
        self._drawn = "client" not in file
        if self._drawn:
            names = file.words("trace") if "trace" in file else [""] * len(file)
            traces, self._trace = np.unique(names, return_inverse=True)
            self._traces = len(traces)
        else:
            self._trace, self._traces = file.clients(clients), clients

    def present(self, clients: np.ndarray, seconds: float, key: int) -> np.ndarray:
        at = seconds if self._period is None else seconds % self._period
        open_now = np.zeros(self._traces, bool)
        open_now[self._trace[(self._start <= at) & (at < self._end)]] = True
        if self._drawn:
            words = client_words(key, 0, _ZONE, clients)
            clients = below(self._traces, words[:, 2], words[:, 3])
        found: np.ndarray = open_now[clients]
        return found

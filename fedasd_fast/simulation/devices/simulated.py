"""The devices of a run: what its settings say, read and checked once."""

from __future__ import annotations

import numpy as np

from ...config import Config
from .availability import ClientAvailability
from .clock import SimulatedClock
from .profiles import DeviceProfiles


class SimulatedDevices:
    def __init__(self, config: Config) -> None:
        self._profiles = DeviceProfiles(config.devices, config.clients, config.seed)
        self.availability = ClientAvailability(config.availability, config.clients, config.seed)
        self.deadline = config.devices.deadline

    @property
    def first_clock(self) -> SimulatedClock:
        return SimulatedClock(files=self._profiles.checksum + self.availability.checksum)

    def client_seconds(self, clients: np.ndarray, samples: np.ndarray, down: int, up: int) -> np.ndarray:
        """[m] for so many samples [m] and bytes: received, then trained, then sent."""
        profiles = self._profiles.of(clients)
        seconds: np.ndarray = down / profiles.download + samples / profiles.speed + up / profiles.upload
        return seconds

    def round_seconds(self, seconds: np.ndarray) -> tuple[float, np.ndarray]:
        """Until the last client has answered, or the deadline; and who has not by then, [m]."""
        late = np.zeros(len(seconds), bool) if self.deadline is None else seconds > self.deadline
        if self.deadline is not None and late.any():
            return self.deadline, late
        return float(seconds.max(initial=0.0)), late

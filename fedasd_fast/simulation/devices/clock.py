"""The simulated clock: part of the state that a round passes on to the next."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SimulatedClock:
    seconds: float = 0.0  # since the run began
    files: str = ""  # checksum of the files that describe devices: with others the time would be another

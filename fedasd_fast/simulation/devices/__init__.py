"""Devices as they are: how fast clients compute and send, when they are there, and what time a round takes of them."""

from .clock import SimulatedClock
from .simulated import SimulatedDevices

__all__ = ["SimulatedClock", "SimulatedDevices"]

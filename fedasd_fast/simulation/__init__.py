"""The simulator: clients, rounds, evaluation, checkpoints."""

from .errors import ClientError, Interrupted, SimulationError
from .replay import Replay, replay
from .run import Result, Run, resume, simulate

__all__ = [
    "ClientError",
    "Interrupted",
    "Replay",
    "Result",
    "Run",
    "SimulationError",
    "replay",
    "resume",
    "simulate",
]

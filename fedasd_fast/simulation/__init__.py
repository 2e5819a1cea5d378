"""The simulator: clients, rounds, aggregation, evaluation, checkpoints."""

from ..callbacks import Run
from .errors import ClientError, Interrupted, SimulationError
from .replay import Replay, replay
from .result import Result
from .simulate import resume, simulate

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

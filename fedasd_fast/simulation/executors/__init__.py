"""The ways to train the clients of a round."""

from ..cohort import Workplace
from .base import Executor
from .processes import Processes
from .serial import Serial

__all__ = ["Executor", "create"]


def create(name: str, place: Workplace) -> Executor:
    return {"auto": Serial, "serial": Serial, "processes": Processes}[name](place)

"""The ways to train the clients of a round."""

from ..cohort import Workplace
from .base import Executor
from .serial import Serial

__all__ = ["Executor", "create"]


def create(name: str, place: Workplace) -> Executor:
    return {"auto": Serial, "serial": Serial}[name](place)

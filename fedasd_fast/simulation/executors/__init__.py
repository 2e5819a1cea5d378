"""The ways to train the clients of a round."""

from ..cohort import Workplace
from .base import Executor
from .serial import Serial
from .stacked import Stacked

__all__ = ["Executor", "create"]


def create(name: str, place: Workplace) -> Executor:
    return Stacked(place) if name == "stacked" else Serial(place)

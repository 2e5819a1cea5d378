"""The ways to train the clients of a round."""

from ..cohort import Workplace
from ..distributed.process_group import Ranks
from .base import Executor
from .local import Local
from .processes import Processes
from .serial import Serial
from .stacked import Stacked
from .torchrun import Torchrun

__all__ = ["Executor", "create", "local"]


def local(place: Workplace) -> Local:
    """For this process alone."""
    return Stacked(place) if place.at_once > 1 else Serial(place)


def create(place: Workplace, ranks: Ranks) -> Executor:
    if place.config.executor == "torchrun":
        return Torchrun(place, local(place), ranks)
    if place.config.executor == "processes":
        return Processes(place)
    return local(place)

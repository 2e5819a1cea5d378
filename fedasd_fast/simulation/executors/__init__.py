"""The ways to train the clients of a round."""

from ..cohort import Workplace
from ..ranks import Ranks
from .base import Executor
from .processes import Processes
from .serial import Serial
from .torchrun import Torchrun

__all__ = ["Executor", "create"]


def create(name: str, place: Workplace, ranks: Ranks | None = None) -> Executor:
    if name == "torchrun":
        return Torchrun(place, ranks or Ranks())
    return {"auto": Serial, "serial": Serial, "processes": Processes}[name](place)

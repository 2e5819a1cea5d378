"""The ways to train the clients of a round: serial, stacked, in worker processes, or on the ranks of torchrun."""

from ..context import Context
from ..distributed.process_group import ProcessGroup
from .base import Executor
from .local import local_executor
from .processes import ProcessesExecutor
from .torchrun import TorchrunExecutor

__all__ = ["Executor", "create_executor", "local_executor"]


def create_executor(context: Context, group: ProcessGroup) -> Executor:
    kind = context.experiment.config.executor
    if kind == "torchrun":
        return TorchrunExecutor(context, group)
    if kind == "processes":
        return ProcessesExecutor(context)
    return local_executor(context)

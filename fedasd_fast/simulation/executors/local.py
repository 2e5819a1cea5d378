"""The executor of a single process: serial, or stacked where several clients are trained at once."""

from __future__ import annotations

from ..context import Context
from .in_process import InProcessExecutor
from .serial import SerialExecutor
from .stacked import StackedExecutor


def local_executor(context: Context) -> InProcessExecutor:
    return StackedExecutor(context) if context.parallelism.clients_at_once > 1 else SerialExecutor(context)

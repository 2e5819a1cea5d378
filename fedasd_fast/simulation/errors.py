"""What can go wrong in a run, and what to do about it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from ..common.errors import ExpectedError


class SimulationError(ExpectedError, RuntimeError):
    """A run cannot start or continue; the message says why and what to do.  What was finished is kept."""


class ClientError(SimulationError):
    """The training of one client failed."""

    def __init__(self, client: int, round: int, step: int, reason: str) -> None:
        super().__init__(f"client {client} failed in round {round + 1} at local step {step + 1}: {reason}")
        self.client, self.round, self.step, self.reason = client, round, step, reason

    def __reduce__(self) -> tuple[Any, ...]:
        """Workers send it to their parent."""
        return ClientError, (self.client, self.round, self.step, self.reason), {"args": self.args}

    def add_hint(self, hint: str) -> None:
        self.args = (f"{self.args[0]}; {hint}",)


def portable(error: Exception) -> Exception:
    """The error, or what is left of it if it cannot be sent to another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        left = SimulationError(f"{type(error).__name__}: {error}")
        left.__notes__ = getattr(error, "__notes__", [])
        return left
    return error


def directory_gone(path: Path) -> SimulationError:
    return SimulationError(
        f"{path} was moved or deleted while the run went on, so nothing more can be saved; if it was moved, continue "
        "it with `fedasd resume` and its new place"
    )


class Interrupted(SimulationError):
    """The run was asked to stop (SIGINT or SIGTERM); its state was saved."""

    exit_code = 130

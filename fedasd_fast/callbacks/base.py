"""Base class of callbacks.  Metrics, checkpoints and the configuration are written by the run itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .events import ClientResult, Run
from .metrics import Metrics

if TYPE_CHECKING:
    from ..simulation.result import Result


class Callback:
    """Does nothing; subclasses override what they need.

    All but `on_client` are called in the main process.  What a method raises ends the run; the traceback has a note
    with the round, and with the client.
    """

    def on_start(self, run: Run) -> None:
        """Before the first round, also of a resumed run."""

    def on_client(self, update: ClientResult) -> None:
        """After a client was trained, in the process that trained it: workers have copies of the callback."""

    def on_evaluate(self, result: Result) -> None:
        """After an evaluation: the run so far, as if it had ended with this round."""

    def on_round(self, metrics: Metrics) -> None:
        """After each round, when its row is in metrics.jsonl."""

    def on_end(self, result: Result) -> None:
        """After the last round."""

"""Tells callbacks of each client that was trained, in the process that trained it."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ...algorithms import Server
from ...callbacks import Callback, ClientResult
from ..callback_notes import noting
from ..client.trainer import LocalRun
from ..cohort import ClientTask


class ClientWatch:
    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = callbacks
        self._sent: tuple[Server, Tensor] | None = None  # a copy of the model of the last round

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def tell(self, server: Server, task: ClientTask, run: LocalRun) -> None:
        """With copies: what a callback keeps or changes is not the run's."""
        if not self._callbacks:
            return
        if self._sent is None or self._sent[0] is not server:
            self._sent = server, server.model.clone()
        for callback in self._callbacks:
            update = ClientResult(
                client=task.client,
                round=server.round + 1,
                end=run.end.clone(),
                server=self._sent[1],
                losses=run.losses.clone(),
                epochs=task.epochs,
                samples=run.samples,
                weight=task.weight,
            )
            with noting(callback, "on_client", f"client {task.client}, round {server.round + 1}"):
                callback.on_client(update)

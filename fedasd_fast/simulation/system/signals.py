"""SIGINT and SIGTERM as a request to stop at the next local step; a second one stops at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class StopRequests:
    """Call it to learn whether to stop.  Signals are caught inside its `with` block only: what is done before, such as
    reading data, ends at once as usual."""

    def __init__(self) -> None:
        self._requested = False
        self._before: dict[int, Any] = {}

    def __call__(self) -> bool:
        return self._requested

    def __enter__(self) -> StopRequests:
        if threading.current_thread() is threading.main_thread():  # elsewhere signals cannot be caught
            for number in (signal.SIGINT, signal.SIGTERM):
                # None: a handler that Python cannot put back.  Ignored signals (a job in the background) stay so.
                if signal.getsignal(number) not in (None, signal.SIG_IGN):
                    self._before[number] = signal.signal(number, self._request)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self._requested:
            raise KeyboardInterrupt
        self._requested = True

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

from fedasd_fast.callbacks import Progress
from fedasd_fast.config import Config

from ..common.terminal import Terminal


def feed_rounds(progress: Progress, rounds: int = 4) -> None:
    progress.on_start(SimpleNamespace(config=Config(name="demo", rounds=rounds), out=None, choice=None))
    for round in range(1, rounds + 1):
        metrics: dict[str, Any] = {"round": round, "client_updates": 6, "seconds": 0.5}
        if round % 2 == 0:
            metrics["acc_cloud"] = 10.0 * round
        progress.on_round(metrics)
    progress.on_end(None)


def test_a_pipe_gets_the_first_and_the_last_round() -> None:
    file = io.StringIO()
    feed_rounds(Progress(file))
    first, last = file.getvalue().splitlines()
    assert first.startswith("demo fedavg: round 1/4")
    assert last.startswith("demo fedavg: round 4/4  cloud 40.00 %")
    assert "12.0 updates/s" in last
    assert "0:00 left" in last


def test_a_pipe_gets_a_line_every_so_often() -> None:
    file = io.StringIO()
    feed_rounds(Progress(file, every=0.0))
    lines = file.getvalue().splitlines()
    assert len(lines) == 4
    assert "cloud 20.00 %" in lines[2]  # the last accuracy stays until the next one


def test_a_terminal_gets_a_bar_and_is_given_back() -> None:
    file = Terminal()
    progress = Progress(file)
    feed_rounds(progress)
    assert "4/4" in file.getvalue()
    assert "cloud 40.00 %" in file.getvalue()
    assert "\x1b[?25h" in file.getvalue()  # the cursor is shown again
    progress.close()  # a second time does nothing

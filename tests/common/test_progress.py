from __future__ import annotations

import io

import pytest

from fedasd_fast.common.progress import ProgressDisplay

from .terminal import Terminal


def test_a_pipe_gets_the_first_and_the_last_step_of_each_task(capsys: pytest.CaptureFixture[str]) -> None:
    display = ProgressDisplay(every=1000)
    display.start("probes", 4)  # shows nothing
    for done in range(1, 5):
        display("probes", done, 4)
    display("products", 1, None)
    display.close()
    shown = [text.split("  ")[0] for text in capsys.readouterr().err.splitlines()]
    assert shown == ["probes: 1/4", "probes: 4/4", "products: 1"]


def test_a_pipe_gets_a_line_from_time_to_time() -> None:
    file = io.StringIO()
    display = ProgressDisplay(file, every=0.0)
    for done in range(3):
        display("download", done, 5, count=f"{done} MB", detail="fast")
    assert file.getvalue().splitlines() == [f"download: {done} MB  fast" for done in range(3)]


def test_a_terminal_gets_one_bar_and_is_given_back() -> None:
    file = Terminal()
    display = ProgressDisplay(file)
    display.start("[bold]first", 2)  # free text, no markup
    display("[bold]first", 2, 2)
    display("second", 3, None)
    display.close()
    display.close()  # a second time does nothing
    shown = file.getvalue()
    assert "[bold]first" in shown
    assert "second" in shown
    assert shown.rindex("\x1b[?25h") > shown.index("\x1b[?25l")  # the cursor was hidden, and is shown again


@pytest.mark.parametrize(("columns", "kept"), [(140, 3), (80, 3), (60, 2), (20, 1)])
def test_a_narrow_terminal_loses_the_bar_and_the_count_never_the_name(
    columns: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    file = Terminal()
    display = ProgressDisplay(file)
    display("quickstart fedspeed+asd", 6, 9, count="round 1500/2000", detail="cloud 95.60 %  0:12 left")
    display.close()
    shown = file.getvalue()
    parts = ["cloud 95.60 %", "0:12 left", "round 1500/2000"]
    if columns > 40:  # where name and accuracy fit
        assert "quickstart fedspeed+asd" in shown
        assert [part in shown for part in parts] == [i < kept for i in range(3)]
    assert ("━" in shown) == (columns == 140)

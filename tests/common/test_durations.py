from __future__ import annotations

import pytest

from fedasd_fast.common.durations import format_clock, format_duration, parse_duration
from fedasd_fast.common.schema import ConfigError


@pytest.mark.parametrize(
    ("text", "value"), [("2h", 7200), ("90m", 5400), ("1h30m", 5400), ("45s", 45), ("1.5d", 129600)]
)
def test_durations_are_parsed(text: str, value: float) -> None:
    assert parse_duration(text, "--budget") == value


@pytest.mark.parametrize("text", ["2", "h", "2 hours", "-2h", "0h", "2h3", ""])
def test_bad_durations_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--budget .*expected a time with its unit"):
        parse_duration(text, "--budget")


def test_durations_are_formatted() -> None:
    assert [format_duration(value) for value in (0.023, 0.36, 1, 5, 600, 9000, 400000)] == [
        "0.02 s",
        "0.4 s",
        "1 s",
        "5 s",
        "10 min",
        "2.5 h",
        "4.6 days",
    ]


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (61.6, "1:02"), (3723, "1:02:03")])
def test_clock(seconds: float, text: str) -> None:
    assert format_clock(seconds) == text
